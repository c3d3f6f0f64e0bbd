//! include/dlpack_ro.h as text: what it declares, and what it says about that.

use super::root;

/// A function of the header.
#[derive(Debug)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// What stands between its documentation and its semicolon, on one line.
    pub prototype: String,
    /// The comment above it.
    pub documentation: String,
}

impl Function {
    /// What it answers.
    pub fn answer(&self) -> &str {
        let before = self.prototype.split_once(&format!("{}(", self.name)).expect("a prototype has its name").0;
        before.trim().trim_start_matches("DLRO_MUST_USE ")
    }

    /// Its parameters.
    pub fn parameters(&self) -> &str {
        self.prototype.split_once(&format!("{}(", self.name)).expect("a prototype has its name").1
    }
}

/// What the header declares.
pub struct Header {
    /// All of it.
    pub text: String,
    /// Its prototypes, in order.
    pub functions: Vec<Function>,
    /// Names and numbers of its own enumerators.
    pub constants: Vec<(String, i64)>,
    /// Its own typedefs.
    pub types: Vec<String>,
    /// Every name that it defines for the preprocessor.
    pub macros: Vec<String>,
}

/// Reads the header.
pub fn read() -> Header {
    let text = std::fs::read_to_string(root().join("include/dlpack_ro.h")).expect("the header is there");
    let macros = text.lines().filter_map(|line| line.strip_prefix("#define ")).map(first_name).collect();
    // Behind this line nothing is DLPack's, and the preprocessor decides nothing but extern "C".
    let (_, own) = text.split_once("#undef DLRO_LAYOUT\n").expect("the layout checks end");
    let mut header = Header { text: text.clone(), functions: vec![], constants: vec![], types: vec![], macros };
    let (mut statement, mut comment, mut depth) = (String::new(), String::new(), 0);
    let mut rest = own;
    while let Some(next) = rest.chars().next() {
        if let Some(tail) = rest.strip_prefix("/*") {
            let (inside, after) = tail.split_once("*/").expect("a comment ends");
            if depth == 0 {
                comment = inside.to_owned();
            }
            rest = after;
        } else if rest.starts_with("//") {
            rest = rest.split_once('\n').map_or("", |(_, after)| after);
        } else if next == '#' {
            let mut line_is_over = false;
            let end = rest.find(|c| {
                let over = c == '\n' && !line_is_over;
                line_is_over = c == '\\';
                over
            });
            rest = &rest[end.unwrap_or(rest.len())..];
        } else if let Some(tail) = rest.strip_prefix("extern \"C\" {") {
            rest = tail;
        } else {
            rest = &rest[next.len_utf8()..];
            match next {
                '{' => depth += 1,
                '}' if depth == 0 => continue, // of extern "C"
                '}' => depth -= 1,
                ';' if depth == 0 => {
                    let words = statement.split_whitespace().collect::<Vec<_>>().join(" ");
                    declare(&mut header, words, std::mem::take(&mut comment));
                    statement.clear();
                    continue;
                }
                _ => {}
            }
            statement.push(next);
        }
    }
    assert!(statement.trim().is_empty(), "the header ends in the middle of {statement:?}");
    assert!(!header.functions.is_empty() && !header.constants.is_empty() && !header.types.is_empty());
    header
}

fn first_name(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

fn declare(header: &mut Header, statement: String, documentation: String) {
    if let Some(typedef) = statement.strip_prefix("typedef ") {
        header.types.push(typedef.rsplit([' ', '*']).next().expect("a typedef has a name").to_owned());
        if typedef.starts_with("enum ") {
            let inside =
                typedef.split_once('{').and_then(|(_, rest)| rest.split_once('}')).expect("an enum has a body").0;
            for value in inside.split(',').map(str::trim).filter(|value| !value.is_empty()) {
                let (name, number) = value.split_once(" = ").unwrap_or_else(|| panic!("{value} has no number"));
                header.constants.push((name.to_owned(), number.parse().expect("a number is a number")));
            }
        }
    } else {
        let start = statement.match_indices("dlro_").map(|(start, _)| start);
        let mut names = start.map(|start| (start, first_name(&statement[start..])));
        let found = names.find(|(start, name)| statement[start + name.len()..].starts_with('('));
        let (_, name) = found.unwrap_or_else(|| panic!("{statement:?} is no prototype and no typedef"));
        header.functions.push(Function { name, prototype: statement, documentation });
    }
}
