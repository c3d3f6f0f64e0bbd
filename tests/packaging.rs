//! What is installed can be used: {install tree, moved tree, add_subdirectory, pkg-config, by hand} x {shared, static}
//! x {C, C++}, by programs that know nothing of cargo.
//!
//! cmake, ninja and pkgconf come from PyPI. The library is built from a copy of the tree, so that nothing is written
//! into the tree; all tests share one build.

mod support;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use support::tools::venv;
use support::{Outcome, outcome, root, soname, succeed, workspace};

const VERSION: &str = env!("CARGO_PKG_VERSION");

// --- The stage ----------------------------------------------------------------------------------------------------

/// A folder for what these tests make; emptied once per run, apart from what cargo built.
fn area() -> &'static Path {
    static AREA: OnceLock<PathBuf> = OnceLock::new();
    AREA.get_or_init(|| {
        let area = workspace().join("packaging");
        fs::create_dir_all(&area).expect("a folder is made");
        for entry in fs::read_dir(&area).expect("it can be read") {
            let path = entry.expect("it can be read").path();
            if path.file_name() != Some(OsStr::new("cargo")) {
                if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) }.expect("it goes away");
            }
        }
        // A cargo that tells on whoever calls it.
        let traps = area.join("traps");
        fs::create_dir_all(&traps).expect("a folder is made");
        for tool in ["cargo", "rustc", "rustup"] {
            let trap = traps.join(tool);
            fs::write(&trap, format!("#!/bin/sh\necho '{tool}: the trap was called' >&2\nexit 97\n"))
                .expect("it is written");
            fs::set_permissions(&trap, fs::Permissions::from_mode(0o755)).expect("it is made executable");
        }
        area
    })
}

/// The tools of the newest CMake, and those of the oldest that we promise to work with.
fn tools(oldest: bool) -> PathBuf {
    let cmake = if oldest { "cmake==3.20.5" } else { "cmake==4.4.5" };
    venv(&[cmake, "ninja==1.13.2", "pkgconf==3.0.7.post0"]).join("bin")
}

/// Nothing of cargo's is in the environment, nor a path for the loader or for pkg-config.
fn bare(program: impl AsRef<OsStr>, path: &[&Path]) -> Command {
    let mut command = Command::new(program);
    command.env_clear();
    for name in ["HOME", "TMPDIR", "CC", "CXX"] {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    let inherited = std::env::var_os("PATH").unwrap_or_default();
    let all = path.iter().map(|path| path.to_path_buf()).chain(std::env::split_paths(&inherited));
    command.env("PATH", std::env::join_paths(all).expect("no colon in a path")).current_dir(area());
    command
}

/// A user's command: cargo is a trap.
fn user(program: impl AsRef<OsStr>) -> Command {
    bare(program, &[&tools(false), &area().join("traps")])
}

/// A builder's command, after the first build: while cargo puts files in their place nobody else may read them.
fn builder(program: impl AsRef<OsStr>) -> Command {
    built();
    first_builder(program)
}

/// A builder's command: cargo as these tests have it.
fn first_builder(program: impl AsRef<OsStr>) -> Command {
    let cargo = Path::new(env!("CARGO")).parent().expect("cargo lies in a folder");
    let mut command = bare(program, &[&tools(false), cargo]);
    for name in ["CARGO_HOME", "RUSTUP_HOME", "RUSTUP_TOOLCHAIN"] {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    command.env("CARGO_TARGET_DIR", area().join("cargo"));
    command
}

fn copy(from: &Path, to: &Path) {
    // -a: cargo goes by the times.
    succeed(Command::new("cp").arg("-a").arg(from).arg(to));
}

/// A copy of the source tree; its path has a space.
fn source() -> &'static Path {
    static SOURCE: OnceLock<PathBuf> = OnceLock::new();
    SOURCE.get_or_init(|| {
        let copied = area().join("source tree");
        fs::create_dir_all(&copied).expect("a folder is made");
        for entry in fs::read_dir(root()).expect("the tree can be read") {
            let path = entry.expect("the tree can be read").path();
            if !["target", "build", ".git"].iter().any(|name| path.file_name() == Some(OsStr::new(name))) {
                copy(&path, &copied);
            }
        }
        copied
    })
}

fn configure(build: &Path, arguments: &[&str]) {
    let mut cmake = first_builder("cmake");
    cmake.arg("-S").arg(source().join("cmake")).arg("-B").arg(build).args(["-G", "Ninja"]).args(arguments);
    succeed(&mut cmake);
}

fn install(build: &Path, prefix: &Path) {
    succeed(builder("cmake").arg("--install").arg(build).arg("--prefix").arg(prefix));
}

/// The folder that CMake built in; the libraries' folder is the same on every machine.
fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let build = area().join("built");
        configure(&build, &["-DCMAKE_INSTALL_LIBDIR=lib"]);
        succeed(first_builder("cmake").arg("--build").arg(&build));
        build
    })
}

/// An installation; its path has a space.
fn installed() -> &'static Path {
    static INSTALLED: OnceLock<PathBuf> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        let prefix = area().join("an installation");
        install(built(), &prefix);
        prefix
    })
}

/// Every file below a folder, with what a link points to.
fn files(folder: &Path) -> BTreeMap<String, Option<String>> {
    fn walk(folder: &Path, base: &Path, all: &mut BTreeMap<String, Option<String>>) {
        for entry in fs::read_dir(folder).expect("it can be read") {
            let path = entry.expect("it can be read").path();
            let name = path.strip_prefix(base).expect("it is below").display().to_string();
            if let Ok(to) = fs::read_link(&path) {
                all.insert(name, Some(to.display().to_string()));
            } else if path.is_dir() {
                walk(&path, base, all);
            } else {
                all.insert(name, None);
            }
        }
    }
    let mut all = BTreeMap::new();
    walk(folder, folder, &mut all);
    all
}

// --- The users ----------------------------------------------------------------------------------------------------

#[derive(Clone, Copy, PartialEq, Debug)]
enum Kind {
    Shared,
    Static,
}
use Kind::{Shared, Static};

#[derive(Clone, Copy, PartialEq, Debug)]
enum Language {
    C,
    Cpp,
}

impl Language {
    fn source(self) -> PathBuf {
        root().join("cmake/consumer").join(if self == Self::C { "consumer.c" } else { "consumer.cpp" })
    }

    fn compiler(self) -> String {
        let (variable, default) = if self == Self::C { ("CC", "cc") } else { ("CXX", "c++") };
        std::env::var(variable).unwrap_or_else(|_| default.to_owned())
    }

    fn cmake(self) -> &'static str {
        if self == Self::C { "C" } else { "CXX" }
    }
}
const LANGUAGES: [Language; 2] = [Language::C, Language::Cpp];

/// What a program asks the loader for.
fn needed(program: &Path) -> Vec<String> {
    let text = succeed(Command::new("readelf").arg("-d").arg(program).env("LC_ALL", "C"));
    text.lines()
        .filter(|line| line.contains("(NEEDED)"))
        .map(|line| line.split(['[', ']']).nth(1).expect("readelf names it").to_owned())
        .collect()
}

/// It was linked as it should be, and it runs where only the loader's own paths count.
fn works(program: &Path, kind: Kind) {
    let needed = needed(program);
    assert!(needed.iter().all(|name| !name.contains('/')), "{} needs {needed:?}", program.display());
    let shared = needed.iter().any(|name| name.contains("dlpack_ro"));
    assert_eq!(shared, kind == Shared, "{} is to be {kind:?} and needs {needed:?}", program.display());
    assert!(!shared || needed.contains(&soname()), "{} needs {needed:?}, not {}", program.display(), soname());
    let printed = succeed(&mut user(program));
    assert!(printed.contains(&format!("dlpack_ro {VERSION}: released once")), "{printed}");
}

/// Configures and builds a project; answers its build folder.
fn project(name: &str, source: &Path, cmake: &mut Command, arguments: &[String]) -> PathBuf {
    let build = area().join(name);
    let program = cmake.get_program().to_owned();
    let configured = succeed(cmake.arg("-S").arg(source).arg("-B").arg(&build).args(["-G", "Ninja"]).args(arguments));
    // The same environment for the second step.
    let mut again = Command::new(program);
    again.env_clear().envs(cmake.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let said = configured + &succeed(again.current_dir(area()).arg("--build").arg(&build).arg("--verbose"));
    assert!(!said.contains("the trap was called"), "{said}");
    build
}

/// A project of one program in one language.
fn write_project(name: &str, language: Language, body: &str) -> PathBuf {
    let folder = area().join(name);
    fs::create_dir_all(&folder).expect("a folder is made");
    let text = format!(
        "cmake_minimum_required(VERSION 3.20)\nproject(consumer LANGUAGES {})\n{body}\n\
         add_executable(consumer \"{}\")\n",
        language.cmake(),
        language.source().display()
    );
    // Only after the program is there can it be linked.
    let (links, rest): (Vec<_>, Vec<_>) = text.lines().partition(|line| line.starts_with("target_link"));
    fs::write(folder.join("CMakeLists.txt"), [rest, links].concat().join("\n") + "\n").expect("it is written");
    folder
}

fn prefix_path(prefix: &Path) -> String {
    format!("-DCMAKE_PREFIX_PATH={}", prefix.display())
}

/// The consumer in cmake/consumer, by find_package.
fn found_in(prefix: &Path, name: &str) {
    for kind in [Shared, Static] {
        let prefer = if kind == Static { "ON" } else { "OFF" };
        let arguments = [prefix_path(prefix), format!("-DDLPACK_RO_PREFER_STATIC={prefer}")];
        let name = format!("{name} {kind:?}");
        let build = project(&name, &root().join("cmake/consumer"), &mut user("cmake"), &arguments);
        works(&build.join("consumer_c"), kind);
        works(&build.join("consumer_cpp"), kind);
    }
}

fn pkg_config(prefix: &Path) -> Command {
    let mut command = user("pkgconf");
    command.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig")).arg("dlpack_ro");
    command
}

/// A program of one source, linked with what pkg-config says.
fn linked_by_pkg_config(prefix: &Path, name: &str) {
    for language in LANGUAGES {
        for kind in [Shared, Static] {
            let program = area().join(format!("{name} pkg-config {language:?} {kind:?}"));
            let flags = if kind == Shared { "--cflags --libs" } else { "--cflags --static --libs" };
            // eval, since this path has a space, and pkg-config escapes it. `-z defs`: nothing is missing.
            let script = format!(
                "flags=$(pkgconf {flags} dlpack_ro)\n\
                 if [ {kind:?} = Static ]; then flags=$(echo \"$flags\" | sed 's/-ldlpack_ro/-l:libdlpack_ro.a/'); fi\n\
                 libdir=$(pkgconf --variable=libdir dlpack_ro)\n\
                 eval {} '\"$1\"' \"$flags\" -Wl,-z,defs -Wl,-rpath,\"$libdir\" -o '\"$2\"'",
                language.compiler()
            );
            let mut shell = user("sh");
            shell.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"));
            succeed(shell.args(["-euc", &script, "sh"]).arg(language.source()).arg(&program));
            works(&program, kind);
        }
    }
}

fn linked_by_hand(prefix: &Path, name: &str) {
    for language in LANGUAGES {
        for kind in [Shared, Static] {
            let program = area().join(format!("{name} by hand {language:?} {kind:?}"));
            let mut compiler = user(language.compiler());
            compiler.arg(language.source()).arg("-I").arg(prefix.join("include")).arg("-o").arg(&program);
            compiler.arg("-Wl,-z,defs");
            if kind == Shared {
                compiler.arg("-L").arg(prefix.join("lib")).arg("-ldlpack_ro");
                compiler.arg(format!("-Wl,-rpath,{}", prefix.join("lib").display()));
            } else {
                compiler.arg(prefix.join("lib/libdlpack_ro.a")).args(["-lm", "-lpthread", "-ldl"]);
            }
            succeed(&mut compiler);
            works(&program, kind);
        }
    }
}

// --- The matrix ---------------------------------------------------------------------------------------------------

#[test]
fn install_tree() {
    found_in(installed(), "install tree");
    linked_by_pkg_config(installed(), "install tree");
    linked_by_hand(installed(), "install tree");
}

/// Nothing in an installation knows where it was made or installed.
#[test]
fn moved_tree() {
    let before = area().join("before");
    install(built(), &before);
    let moved = area().join("moved to here");
    fs::rename(&before, &moved).expect("it is moved");
    for name in files(&moved).into_keys().filter(|name| name.ends_with(".cmake") || name.ends_with(".pc")) {
        let text = fs::read_to_string(moved.join(&name)).expect("it can be read");
        assert!(!text.contains(&*area().to_string_lossy()), "{name} knows a place:\n{text}");
    }
    found_in(&moved, "moved tree");
    linked_by_pkg_config(&moved, "moved tree");
    linked_by_hand(&moved, "moved tree");
}

/// The same targets without an installation; what has not changed is not linked again.
#[test]
fn add_subdirectory() {
    for language in LANGUAGES {
        let here = format!("add_subdirectory(\"{}\" dlpack_ro)\n", source().join("cmake").display());
        let mut body = here + "set(source \"";
        body += &format!("{}\")\n", language.source().display());
        for target in ["dlpack_ro", "shared", "static"] {
            body += &format!(
                "add_executable(with_{target} \"${{source}}\")\n\
                 target_link_libraries(with_{target} PRIVATE dlpack_ro::{target})\n"
            );
        }
        let folder = area().join(format!("sub project {language:?}"));
        fs::create_dir_all(&folder).expect("a folder is made");
        let head = "cmake_minimum_required(VERSION 3.20)\nproject(consumer LANGUAGES";
        fs::write(folder.join("CMakeLists.txt"), format!("{head} {})\n{body}", language.cmake()))
            .expect("it is written");
        let name = format!("sub build {language:?}");
        let build = project(&name, &folder, &mut builder("cmake"), &[]);
        for (target, kind) in [("dlpack_ro", Shared), ("shared", Shared), ("static", Static)] {
            works(&build.join(format!("with_{target}")), kind);
        }
        let time =
            |target: &str| fs::metadata(build.join(target)).and_then(|file| file.modified()).expect("it is there");
        let linked = ["with_shared", "with_static"].map(time);
        succeed(builder("cmake").arg("--build").arg(&build));
        assert_eq!(linked, ["with_shared", "with_static"].map(time), "linked again though nothing changed");
        // A project does not install its dependencies unless it says so.
        install(&build, &area().join(format!("{name} installed")));
        assert!(!area().join(format!("{name} installed")).exists(), "dlpack_ro is installed with the project");
    }
}

/// FetchContent, the static library by preference, and the way without linker scripts.
#[test]
fn fetch_content() {
    let body = format!(
        "include(FetchContent)\n\
         FetchContent_Declare(dlpack_ro SOURCE_DIR \"{}\" SOURCE_SUBDIR cmake)\n\
         FetchContent_MakeAvailable(dlpack_ro)\n\
         target_link_libraries(consumer PRIVATE dlpack_ro::dlpack_ro)",
        source().display()
    );
    let folder = write_project("fetch content", Language::C, &body);
    let arguments = ["-DDLPACK_RO_PREFER_STATIC=ON".to_owned(), "-DDLPACK_RO_LINKER_SCRIPT=OFF".to_owned()];
    let build = project("fetch content build", &folder, &mut builder("cmake"), &arguments);
    works(&build.join("consumer"), Static);
}

/// A path and an environment as users of Makefiles have them, and `cmake --install` where nothing was built.
#[test]
fn install_builds_what_is_missing() {
    let build = area().join("make");
    let mut cmake = builder("cmake");
    cmake.arg("-S").arg(source().join("cmake")).arg("-B").arg(&build).args(["-G", "Unix Makefiles"]);
    succeed(cmake.arg("-DCMAKE_INSTALL_LIBDIR=lib"));
    let prefix = area().join("make installed");
    install(&build, &prefix);
    assert_eq!(files(&prefix), files(installed()));
}

// --- What is there ------------------------------------------------------------------------------------------------

#[test]
fn installed_files() {
    let mut expected: BTreeMap<String, Option<String>> = [
        "lib/libdlpack_ro.a",
        "lib/cmake/dlpack_ro/dlpack_roConfig.cmake",
        "lib/cmake/dlpack_ro/dlpack_roConfigVersion.cmake",
        "lib/pkgconfig/dlpack_ro.pc",
        "share/licenses/dlpack_ro/LICENSE-APACHE",
        "share/licenses/dlpack_ro/LICENSE-MIT",
    ]
    .map(|name| (name.to_owned(), None))
    .into();
    let real = format!("libdlpack_ro.so.{VERSION}");
    expected.insert(format!("lib/{real}"), None);
    expected.insert(format!("lib/{}", soname()), Some(real.clone()));
    expected.insert("lib/libdlpack_ro.so".to_owned(), Some(soname()));
    for header in files(&root().join("include")).into_keys() {
        expected.insert(format!("include/{header}"), None);
    }
    assert_eq!(files(installed()), expected);
    let elf = succeed(Command::new("readelf").arg("-d").arg(installed().join("lib").join(real)).env("LC_ALL", "C"));
    assert!(elf.contains(&format!("Library soname: [{}]", soname())), "{elf}");

    // Who only runs programs needs only what they ask for.
    let runtime = area().join("runtime only");
    let mut cmake = builder("cmake");
    succeed(
        cmake.arg("--install").arg(built()).arg("--prefix").arg(&runtime).args(["--component", "dlpack_ro_Runtime"]),
    );
    expected.retain(|name, _| name.contains(".so.") || name.contains("licenses"));
    assert_eq!(files(&runtime), expected);
}

/// DESTDIR, GNUInstallDirs, and Rust's target given by name; the package works from the staging folder.
#[test]
fn destdir_and_folders() {
    let build = area().join("distribution");
    let triple = env!("DLRO_HOST");
    let target = format!("-DDLPACK_RO_CARGO_TARGET={triple}");
    let folders = ["-DCMAKE_INSTALL_LIBDIR=lib/some-triplet", "-DCMAKE_INSTALL_INCLUDEDIR=include/deep"];
    configure(&build, &[folders[0], folders[1], &target, "-DCMAKE_INSTALL_PREFIX=/usr"]);
    let stage = area().join("stage");
    succeed(builder("cmake").arg("--install").arg(&build).env("DESTDIR", &stage));
    let usr = stage.join("usr");
    let found: Vec<_> = files(&stage).into_keys().collect();
    let moved = |name: &String| {
        let name = name.replacen("lib/", "lib/some-triplet/", 1).replacen("include/", "include/deep/", 1);
        format!("usr/{name}")
    };
    let mut expected: Vec<_> = files(installed()).keys().map(moved).collect();
    expected.sort();
    assert_eq!(found, expected);
    let body = "find_package(dlpack_ro CONFIG REQUIRED)\ntarget_link_libraries(consumer PRIVATE dlpack_ro::static)";
    let folder = write_project("distribution user", Language::C, body);
    let arguments = [format!("-Ddlpack_ro_DIR={}", usr.join("lib/some-triplet/cmake/dlpack_ro").display())];
    works(&project("distribution user build", &folder, &mut user("cmake"), &arguments).join("consumer"), Static);
    let mut command = user("pkgconf");
    command.env("PKG_CONFIG_PATH", usr.join("lib/some-triplet/pkgconfig"));
    let said = succeed(command.args(["--variable=includedir", "dlpack_ro"]));
    let includes = PathBuf::from(said.trim().replace('\\', ""));
    assert!(includes.join("dlpack_ro.h").exists(), "{said}");
}

// --- find_package -------------------------------------------------------------------------------------------------

/// Which of these requests a package meets; `folder` holds its two files.
fn requests_met(folder: &Path, requests: &[&str]) -> Vec<bool> {
    let name = format!("requests {}", folder.display().to_string().replace('/', "-"));
    let project = area().join(&name);
    fs::create_dir_all(&project).expect("a folder is made");
    let mut text = "cmake_minimum_required(VERSION 3.20)\nproject(requests LANGUAGES NONE)\n".to_owned();
    for request in requests {
        text += "unset(dlpack_ro_DIR CACHE)\n";
        text +=
            &format!("find_package(dlpack_ro {request} CONFIG QUIET NO_DEFAULT_PATH PATHS \"{}\")\n", folder.display());
        text += &format!("message(STATUS \"({request}) ${{dlpack_ro_FOUND}}.\")\n");
    }
    fs::write(project.join("CMakeLists.txt"), text).expect("it is written");
    let said = succeed(user("cmake").arg("-S").arg(&project).arg("-B").arg(project.join("build")));
    requests
        .iter()
        .map(|request| match (said.contains(&format!("({request}) 1.")), said.contains(&format!("({request}) 0."))) {
            (true, false) => true,
            (false, true) => false,
            other => panic!("({request}) {other:?}: {said}"),
        })
        .collect()
}

#[test]
fn versions() {
    // The one that is built.
    let parts: Vec<u32> = VERSION.split('.').map(|part| part.parse().expect("a number")).collect();
    let (major, minor, patch) = (parts[0], parts[1], parts[2]);
    let requests = [
        String::new(),
        VERSION.to_owned(),
        format!("{VERSION} EXACT"),
        format!("{major}.{minor}"),
        format!("{major}.{minor}.{}", patch + 1),
        format!("{major}.{}", minor + 1),
        format!("{}.0", major + 1),
    ];
    let requests: Vec<_> = requests.iter().map(String::as_str).collect();
    let package = installed().join("lib/cmake/dlpack_ro");
    assert_eq!(requests_met(&package, &requests), [true, true, true, true, false, false, false], "{requests:?}");

    // Later ones: the version file is made when CMake configures.
    let later = |version: &str| {
        let tree = area().join(format!("version {version}"));
        fs::create_dir_all(&tree).expect("a folder is made");
        copy(&source().join("cmake"), &tree);
        let manifest = fs::read_to_string(source().join("Cargo.toml")).expect("it can be read");
        let changed = manifest.replace(&format!("version = \"{VERSION}\""), &format!("version = \"{version}\""));
        fs::write(tree.join("Cargo.toml"), changed).expect("it is written");
        let mut cmake = builder("cmake");
        succeed(cmake.arg("-S").arg(tree.join("cmake")).arg("-B").arg(tree.join("build")).args(["-G", "Ninja"]));
        let package = tree.join("build/stage");
        fs::write(package.join("dlpack_roConfig.cmake"), "").expect("it is written");
        package
    };
    let before_one = ["0.7.0", "0.7.3", "0.7", "0.7.4", "0.6", "0.8", "1.0", "0.7...<0.8", "0.8...<0.9"];
    assert_eq!(
        requests_met(&later("0.7.3"), &before_one),
        [true, true, true, false, false, false, false, true, false],
        "{before_one:?} of 0.7.3"
    );
    let from_one = ["1.0", "1.4.2", "1.4.3", "1.5", "2.0", "0.9", "1...<2"];
    assert_eq!(
        requests_met(&later("1.4.2"), &from_one),
        [true, true, false, false, false, false, true],
        "{from_one:?} of 1.4.2"
    );
}

/// The package asks nothing of the project; the oldest CMake takes it, too, twice, and in every language.
#[test]
fn languages_and_oldest_cmake() {
    for oldest in [false, true] {
        let cmake = || {
            let mut command = user("cmake");
            if oldest {
                command = bare("cmake", &[&tools(true), &area().join("traps")]);
            }
            command
        };
        let version = succeed(cmake().arg("--version"));
        assert_eq!(version.contains("3.20"), oldest, "{version}");
        let none = area().join(format!("no language {oldest}"));
        fs::create_dir_all(&none).expect("a folder is made");
        let text = "cmake_minimum_required(VERSION 3.20)\nproject(none LANGUAGES NONE)\n\
                    find_package(dlpack_ro CONFIG REQUIRED COMPONENTS shared static)\n\
                    find_package(dlpack_ro CONFIG REQUIRED)\n\
                    get_property(languages GLOBAL PROPERTY ENABLED_LANGUAGES)\n\
                    foreach(target shared static dlpack_ro)\n\
                    get_target_property(type dlpack_ro::${target} TYPE)\n\
                    message(STATUS \"${target} is ${type} in ${languages}.\")\nendforeach()\n";
        fs::write(none.join("CMakeLists.txt"), text).expect("it is written");
        let mut command = cmake();
        command.arg("-S").arg(&none).arg("-B").arg(none.join("build")).arg(prefix_path(installed()));
        let said = succeed(&mut command);
        for (target, kind) in [("shared", "SHARED"), ("static", "STATIC"), ("dlpack_ro", "SHARED")] {
            assert!(said.contains(&format!("{target} is {kind}_LIBRARY in NONE.")), "{said}");
        }
        assert!(!said.to_lowercase().contains("warning"), "{said}");
        for language in LANGUAGES {
            let body = "find_package(dlpack_ro CONFIG REQUIRED)\n\
                        target_link_libraries(consumer PRIVATE dlpack_ro::dlpack_ro)";
            let name = format!("only {language:?} {oldest}");
            let folder = write_project(&name, language, body);
            let build = project(&format!("{name} build"), &folder, &mut cmake(), &[prefix_path(installed())]);
            works(&build.join("consumer"), Shared);
        }
    }
    // It also builds the library.
    let mut cmake = builder(tools(true).join("cmake"));
    let build = area().join("built by the oldest");
    succeed(
        cmake
            .arg("-S")
            .arg(source().join("cmake"))
            .arg("-B")
            .arg(&build)
            .args(["-G", "Ninja"])
            .arg("-DCMAKE_INSTALL_LIBDIR=lib"),
    );
    let mut cmake = builder(tools(true).join("cmake"));
    let prefix = area().join("installed by the oldest");
    succeed(cmake.arg("--install").arg(&build).arg("--prefix").arg(&prefix));
    assert_eq!(files(&prefix), files(installed()));
}

/// Distributions take one of the two libraries out.
#[test]
fn one_library_is_enough() {
    for (kind, name) in [(Shared, "shared"), (Static, "static")] {
        let prefix = area().join(format!("only {name}"));
        install(built(), &prefix);
        for file in files(&prefix).into_keys().filter(|file| file.contains("libdlpack_ro.")) {
            if file.ends_with(".a") == (kind == Shared) {
                fs::remove_file(prefix.join(file)).expect("it goes away");
            }
        }
        let body = "find_package(dlpack_ro CONFIG REQUIRED)\n\
                    target_link_libraries(consumer PRIVATE dlpack_ro::dlpack_ro)";
        let folder = write_project(&format!("user of only {name}"), Language::C, body);
        let title = format!("user of only {name} build");
        works(&project(&title, &folder, &mut user("cmake"), &[prefix_path(&prefix)]).join("consumer"), kind);
        let requests = ["COMPONENTS shared", "COMPONENTS static", "COMPONENTS warm"];
        let met = requests_met(&prefix.join("lib/cmake/dlpack_ro"), &requests);
        assert_eq!(met, [kind == Shared, kind == Static, false]);
    }
}

// --- One fact, one place --------------------------------------------------------------------------------------------

#[test]
fn versions_are_equal() {
    let header = fs::read_to_string(installed().join("include/dlpack_ro.h")).expect("it can be read");
    let number = |part: &str| {
        let line = header.lines().find(|line| line.starts_with(&format!("#define DLRO_VERSION_{part} ")));
        line.and_then(|line| line.rsplit(' ').next()).expect("the header says it").to_owned()
    };
    assert_eq!(format!("{}.{}.{}", number("MAJOR"), number("MINOR"), number("PATCH")), VERSION);
    assert_eq!(succeed(pkg_config(installed()).arg("--modversion")).trim(), VERSION);
    let file = installed().join("lib/cmake/dlpack_ro/dlpack_roConfigVersion.cmake");
    let text = fs::read_to_string(file).expect("it can be read");
    assert!(text.contains(&format!("set(PACKAGE_VERSION \"{VERSION}\")")), "{text}");
}

/// pkg-config, the CMake package and the linker script name the same system libraries, all that Rust's std needs.
#[test]
fn system_libraries_are_those_of_rustc() {
    let mut rustc = Command::new("rustc");
    rustc.current_dir(area()).args(["--crate-type", "staticlib", "--crate-name", "empty", "-"]);
    rustc.args(["--print", "native-static-libs=libraries-of-std.txt"]).stdin(std::process::Stdio::null());
    succeed(&mut rustc);
    let std = fs::read_to_string(area().join("libraries-of-std.txt")).expect("rustc wrote it");
    let std: Vec<_> = std.split_whitespace().filter(|library| *library != "-lgcc_s").collect();
    assert!(std.contains(&"-lc"), "{std:?}");

    let config = installed().join("lib/cmake/dlpack_ro/dlpack_roConfig.cmake");
    let config = fs::read_to_string(config).expect("it can be read");
    let line = config.lines().find(|line| line.contains("INTERFACE_LINK_LIBRARIES")).expect("it names them");
    let cmake: Vec<_> = line.split('"').nth(1).expect("in quotes").split(';').collect();
    let pc = fs::read_to_string(installed().join("lib/pkgconfig/dlpack_ro.pc")).expect("it can be read");
    let pc = pc.lines().find_map(|line| line.strip_prefix("Libs.private:")).expect("it names them");
    let pc: Vec<_> = pc.split_whitespace().collect();
    let script = fs::read_to_string(built().join("stage/system-libraries.ld")).expect("it can be read");
    let script: Vec<_> = script.split("INPUT(").skip(1).map(|rest| rest.split(')').next().expect("closed")).collect();
    assert_eq!(cmake, pc);
    assert_eq!(cmake, script);
    for library in std {
        assert!(cmake.contains(&library), "{library} is missing from {cmake:?}");
    }
}

/// The names on the systems that we have no machine of: the package configures, and names them.
#[test]
fn names_elsewhere() {
    let abi = soname().replace("libdlpack_ro.so.", "");
    let windows = [
        r#"IMPORTED_LOCATION "${PACKAGE_PREFIX_DIR}/bin/dlpack_ro.dll""#.to_owned(),
        r#"IMPORTED_IMPLIB "${PACKAGE_PREFIX_DIR}/lib/libdlpack_ro.dll.a""#.to_owned(),
        r#"IMPORTED_LOCATION "${PACKAGE_PREFIX_DIR}/lib/libdlpack_ro.a""#.to_owned(),
    ];
    let darwin = [
        format!(r#"IMPORTED_LOCATION "${{PACKAGE_PREFIX_DIR}}/lib/libdlpack_ro.{VERSION}.dylib""#),
        format!(r#"IMPORTED_SONAME "@rpath/libdlpack_ro.{abi}.dylib""#),
        r#"IMPORTED_LOCATION "${PACKAGE_PREFIX_DIR}/lib/libdlpack_ro.a""#.to_owned(),
    ];
    let systems = [("Windows", "x86_64-pc-windows-gnu", windows), ("Darwin", "aarch64-apple-darwin", darwin)];
    for (system, target, lines) in systems {
        let build = area().join(format!("for {system}"));
        let system_name = format!("-DCMAKE_SYSTEM_NAME={system}");
        let forced = ["-DCMAKE_C_COMPILER=cc", "-DCMAKE_C_COMPILER_FORCED=1", "-DCMAKE_INSTALL_LIBDIR=lib"];
        let mut cmake = builder("cmake");
        cmake
            .arg("-S")
            .arg(source().join("cmake"))
            .arg("-B")
            .arg(&build)
            .args(["-G", "Ninja", &system_name])
            .args(forced);
        let Outcome { success, output } = outcome(&mut cmake);
        assert!(!success && output.contains("DLPACK_RO_CARGO_TARGET"), "{output}");
        succeed(cmake.arg(format!("-DDLPACK_RO_CARGO_TARGET={target}")));
        let template = build.join("templates/dlpack_roConfig.cmake.in");
        let text = fs::read_to_string(template).expect("it can be read");
        for line in lines {
            assert!(text.contains(&line), "{line} is missing:\n{text}");
        }
    }
}

// --- The page -------------------------------------------------------------------------------------------------------

/// docs/linking.md, run as it stands.
#[test]
fn documented() {
    let page = fs::read_to_string(root().join("docs/linking.md")).expect("it can be read");
    let blocks = |language: &str| -> Vec<String> {
        let opening = format!("```{language}\n");
        page.split(&opening).skip(1).map(|rest| rest.split("```").next().expect("closed").to_owned()).collect()
    };
    let folder = area().join("page");
    let (sh, cmake) = (blocks("sh"), blocks("cmake"));
    assert_eq!((sh.len(), cmake.len()), (5, 2), "the page has changed; change this test");
    for (block, name) in cmake.iter().zip(["consumer", "embedded"]) {
        fs::create_dir_all(folder.join(name)).expect("a folder is made");
        fs::write(folder.join(name).join("CMakeLists.txt"), block).expect("it is written");
        copy(&Language::C.source(), &folder.join(name));
    }
    copy(&Language::C.source(), &folder);
    copy(&Language::Cpp.source(), &folder);
    let prefix = folder.join("prefix");
    // The first block, in the source tree; the folder is the only one that says where.
    let first = sh[0].replace("-B build", "-B \"$BUILD\"").replace("--build build", "--build \"$BUILD\"");
    let first = first.replace("--install build", "--install \"$BUILD\"");
    let mut shell = builder("sh");
    shell.current_dir(source()).env("PREFIX", &prefix).env("BUILD", folder.join("build"));
    succeed(shell.args(["-eux", "-c", &first]));
    // The folder of libraries is the machine's choice.
    let rest = sh[1..].join("\n");
    if !prefix.join("lib/libdlpack_ro.a").exists() {
        fs::remove_dir_all(&prefix).expect("it goes away");
        install(built(), &prefix);
    }
    let mut shell = user("sh");
    succeed(shell.current_dir(&folder).env("PREFIX", &prefix).args(["-eux", "-c", &rest]));
    for (program, kind) in [
        ("consumer/build/consumer", Shared),
        ("shared", Shared),
        ("static", Static),
        ("all-static", Static),
        ("by-hand", Shared),
        ("by-hand-static", Static),
        ("by-hand-cpp", Shared),
    ] {
        works(&folder.join(program), kind);
    }
    assert_eq!(needed(&folder.join("all-static")), [] as [&str; 0]);
    let mut embedded = builder("cmake");
    embedded.env("SOURCE", source());
    works(&project("page embedded", &folder.join("embedded"), &mut embedded, &[]).join("consumer"), Shared);
}
