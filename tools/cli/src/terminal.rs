// SPDX-License-Identifier: GPL-2.0

//! What the terminal can do, as far as TERM says.

use std::ffi::OsStr;
use std::io::{self, IsTerminal};

/// Whether standard output is a terminal that can be cleared and drawn upon.
pub fn can_be_drawn_on() -> bool {
    io::stdout().is_terminal() && knows_escapes(std::env::var_os("TERM").as_deref())
}

fn knows_escapes(term: Option<&OsStr>) -> bool {
    term.is_some_and(|term| !term.is_empty() && term != "dumb")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dumb_terminals() {
        for term in [None, Some(""), Some("dumb")] {
            assert!(!knows_escapes(term.map(OsStr::new)), "{term:?}");
        }
        assert!(knows_escapes(Some(OsStr::new("xterm"))));
    }
}
