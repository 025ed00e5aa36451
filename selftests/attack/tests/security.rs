// SPDX-License-Identifier: GPL-2.0

//! Every test that Documentation/security.md names is there.

use std::fs;
use std::path::{Path, PathBuf};

/// All Rust sources with tests.
fn sources(folder: &Path, found: &mut Vec<String>) {
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    for entry in entries {
        let path: PathBuf = entry.expect("can be read").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(fs::read_to_string(&path).expect("is text"));
        }
    }
}

/// Whether some source has this test: in a table of its group, or as a host test.
fn exists(sources: &[String], test: &str) -> bool {
    match test.split_once('.') {
        Some((group, function)) => sources.iter().any(|source| {
            source.contains(&format!("\n    \"{group}\";\n"))
                && source.contains(&format!("\n    {function}: ["))
                && source.contains(&format!("\nfn {function}("))
        }),
        None => sources.iter().any(|source| {
            let before = source.split(&format!("fn {test}(")).next();
            before.is_some_and(|before| before.len() < source.len() && before.contains("#[test]"))
        }),
    }
}

/// The names in the last column of the table of faults.
fn named() -> Vec<String> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = fs::read_to_string(top.join("Documentation/security.md")).expect("is there");
    let table = text.split("\n## Faults\n").nth(1).expect("has the table");
    let table = table
        .split("\n## ")
        .next()
        .expect("splits into one at least");
    let rows = table.lines().filter(|line| line.starts_with("| ")).skip(1);
    let mut names = Vec::new();
    for row in rows {
        let column = row
            .trim_end_matches('|')
            .rsplit('|')
            .next()
            .expect("a column");
        let mut here: Vec<_> = column
            .split('`')
            .skip(1)
            .step_by(2)
            .map(str::to_owned)
            .collect();
        assert!(!here.is_empty(), "no test: {row}");
        names.append(&mut here);
    }
    names
}

#[test]
fn tests_that_are_named_are_there() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut all = Vec::new();
    for folder in ["selftests", "rust/logic", "tools", "qemu/runner"] {
        sources(&top.join(folder), &mut all);
    }
    let names = named();
    assert!(names.len() > 50, "{names:?}");
    for name in &names {
        assert!(exists(&all, name), "there is no test {name}");
    }
    assert!(!exists(&all, "read.nothing_of_the_kind"));
    assert!(!exists(&all, "nothing_of_the_kind"));
}
