// SPDX-License-Identifier: GPL-2.0

//! Lines that are too long for a terminal.

/// What fits everywhere.
const WIDTH: usize = 80;

/// Breaks a row of a table at blanks and commas so that each line has 80 columns at most, and indents the lines
/// after the first one. A word that is longer than a line stays whole.
pub fn fold(row: &str, indent: usize) -> String {
    let mut lines = String::new();
    let mut line = String::new();
    for word in row.split_inclusive([' ', ',']) {
        let begun = line.trim_end().len() > indent || (lines.is_empty() && !line.is_empty());
        if begun && (line.chars().count() + word.trim_end().chars().count()) > WIDTH {
            lines.push_str(line.trim_end());
            lines.push('\n');
            line = " ".repeat(indent);
        }
        line.push_str(word);
    }
    lines + line.trim_end()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_rows_stay_as_they_are() {
        for row in ["", "a", "   a   b", &"x".repeat(200)] {
            assert_eq!(fold(row, 4), row.trim_end());
        }
    }

    #[test]
    fn long_rows_are_broken() {
        let row = format!("  1 {}", "word ".repeat(40));
        let folded = fold(&row, 4);
        assert!(folded.lines().count() > 1);
        for line in folded.lines() {
            assert!(line.len() <= 80, "{folded}");
        }
        assert!(folded
            .lines()
            .skip(1)
            .all(|line| line.starts_with("    word")));
        assert_eq!(folded.matches("word").count(), 40);
        let folded = fold(&"1000,".repeat(50), 10);
        assert!(folded.lines().all(|line| line.len() <= 80), "{folded}");
        assert_eq!(folded.matches("1000,").count(), 50);
    }
}
