//! docs/rules.md is true: every test that it names exists, every rule has one, and no report is forgotten.
//!
//! A rule is a paragraph that begins with a bold sentence; it says "Why:", "Source:" and "Test:". A report is a
//! list item that begins with its bold number; it names a test or says "Not here:". A test is a code span: a file of
//! this repository, a colon, and the name of a Rust test function or a part of one `checked("...")` text.

mod support;

use std::collections::BTreeMap;
use support::root;

/// The reports that the page answers for, by the numbers that the tests call them.
const REPORTS: &[(char, &[u32])] = &[
    ('A', &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 15, 16, 17, 18, 19, 20, 22]),
    ('B', &[1, 2, 3, 4, 6, 7, 8, 10, 11, 13, 14, 15, 17, 18, 20]),
    ('C', &[1, 3, 4, 5, 6]),
    ('D', &[1, 2, 3, 4, 6, 7, 9, 10, 11, 14, 16]),
    ('E', &[1, 2, 4, 6, 7]),
    ('F', &[1, 2, 3, 5, 7, 8]),
    ('G', &[1, 2, 3, 4]),
    ('H', &[2, 3]),
    ('I', &[1, 2, 5, 6, 7, 8, 10, 11, 12, 13]),
    ('J', &[1, 2, 3, 4]),
];

/// The page's paragraphs and list items, each on one line.
fn paragraphs() -> Vec<String> {
    let text = std::fs::read_to_string(root().join("docs/rules.md")).expect("docs/rules.md is there");
    text.replace("\n- ", "\n\n- ")
        .split("\n\n")
        .map(|part| part.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect()
}

/// The code spans of a paragraph that name a test: file and name.
fn tests(paragraph: &str) -> Vec<(&str, &str)> {
    let spans = paragraph.split('`').skip(1).step_by(2);
    spans.filter_map(|span| span.split_once(": ")).filter(|(file, _)| file.contains('/')).collect()
}

/// The string literals of a line of C, which in these files have no quotes inside.
fn literals(line: &str) -> impl Iterator<Item = &str> {
    line.split('"').skip(1).step_by(2)
}

/// What a C program prints that it checked: the arguments of `checked`, and the rows of a table that it prints.
fn checked(source: &str) -> Vec<&str> {
    let says = |line: &&str| line.contains("checked(\"") || line.trim_start().starts_with("{\"");
    source.lines().filter(says).filter_map(|line| literals(line).next()).collect()
}

fn is_test_function(source: &str, name: &str) -> bool {
    let Some((before, _)) = source.split_once(&format!("fn {name}(")) else { return false };
    let mut attributes = before.trim_end().lines().rev().map(str::trim).take_while(|line| line.starts_with("#["));
    attributes.any(|line| line == "#[test]")
}

/// What is wrong with a reference to a test, if anything.
fn complaint(file: &str, name: &str) -> Option<String> {
    let Ok(source) = std::fs::read_to_string(root().join(file)) else { return Some("no such file".to_owned()) };
    if file.ends_with(".rs") {
        return (!is_test_function(&source, name)).then(|| "no such test function".to_owned());
    }
    match checked(&source).iter().filter(|text| text.contains(name)).count() {
        1 => None,
        0 => Some("no checked() text has this".to_owned()),
        several => Some(format!("{several} checked() texts have this")),
    }
}

#[test]
fn every_test_that_is_named_exists() {
    let paragraphs = paragraphs();
    let named: Vec<_> = paragraphs.iter().flat_map(|paragraph| tests(paragraph)).collect();
    assert!(named.len() > 200, "only {} tests are named: has the page another form now?", named.len());
    let wrong: Vec<_> = named
        .iter()
        .filter_map(|(file, name)| complaint(file, name).map(|why| format!("`{file}: {name}`: {why}")))
        .collect();
    assert!(wrong.is_empty(), "docs/rules.md names tests that are not there:\n{}", wrong.join("\n"));
}

#[test]
fn every_rule_has_a_reason_a_source_and_a_test() {
    let paragraphs = paragraphs();
    let rules: Vec<_> = paragraphs.iter().filter(|paragraph| paragraph.starts_with("**")).collect();
    assert!(rules.len() > 40, "only {} rules: has the page another form now?", rules.len());
    for rule in rules {
        for part in ["Why: ", "Source: ", "Test: "] {
            assert!(rule.contains(part), "no \"{part}\" in: {rule}");
        }
        let (_, proof) = rule.split_once("Test: ").expect("seen above");
        assert!(!tests(proof).is_empty(), "no test in: {rule}");
    }
}

#[test]
fn every_report_has_a_test_or_a_reason() {
    let mut found: BTreeMap<String, String> = BTreeMap::new();
    for paragraph in paragraphs() {
        let Some((number, said)) = paragraph.strip_prefix("- **").and_then(|item| item.split_once("** ")) else {
            continue;
        };
        let excused = said.split_once("Not here: ").is_some_and(|(_, reason)| reason.len() > 20);
        assert!(excused || !tests(said).is_empty(), "report {number} has neither a test nor a reason: {said}");
        assert!(found.insert(number.to_owned(), paragraph.clone()).is_none(), "report {number} stands there twice");
    }
    let mut expected: Vec<_> = REPORTS
        .iter()
        .flat_map(|(group, numbers)| numbers.iter().map(move |number| format!("{group}{number}")))
        .collect();
    expected.sort();
    assert_eq!(found.into_keys().collect::<Vec<_>>(), expected);
}
