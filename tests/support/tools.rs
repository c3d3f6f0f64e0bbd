//! Tools from PyPI, for machines that have only cargo, a C compiler, make and Python 3.

use super::{succeed, workspace};
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::Command;

/// A virtual environment below target/ with these packages, such as `["cmake==4.4.5", "ninja==1.13.2"]`, installed
/// the first time that somebody asks for them; say versions. Its programs are in `bin`.
pub fn venv(packages: &[&str]) -> PathBuf {
    let folder = workspace().join("venvs");
    fs::create_dir_all(&folder).expect("a folder is made");
    let name = packages.join("+").replace(|c: char| !c.is_ascii_alphanumeric() && !"=.+-_".contains(c), "_");
    let venv = folder.join(&name);
    // One at a time: tests run in several threads, and cargo may run several times.
    let lock = File::create(folder.join(format!("{name}.lock"))).expect("a file is made");
    // SAFETY: the descriptor is open until `lock` is dropped, which also unlocks it.
    assert_eq!(unsafe { libc::flock(lock.as_raw_fd(), libc::LOCK_EX) }, 0, "{name} cannot be locked");
    // Written last, so that one that was interrupted is made again. It has the packages that are in there.
    let done = venv.join("installed");
    if fs::read_to_string(&done).is_ok_and(|installed| installed == packages.join("\n")) {
        return venv;
    }
    let _ = fs::remove_dir_all(&venv);
    succeed(Command::new("python3").args(["-m", "venv"]).arg(&venv));
    let mut pip = Command::new(venv.join("bin/python"));
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]).args(packages);
    succeed(&mut pip);
    fs::write(&done, packages.join("\n")).expect("a file is written");
    venv
}
