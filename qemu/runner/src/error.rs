// SPDX-License-Identifier: GPL-2.0
//! The one error type: a sentence for the person who ran the command.

use std::fmt;

/// What went wrong and what to do about it, in one sentence.
#[derive(Debug, PartialEq, Eq)]
pub struct Error(String);

/// A result whose error is a sentence.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error that says `sentence`.
    pub fn new(sentence: impl Into<String>) -> Self {
        Self(sentence.into())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Adds what was being attempted to an operating-system error.
pub trait Context<T> {
    /// Turns an error into `cannot WHAT: CAUSE`.
    fn context(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T> Context<T> for std::io::Result<T> {
    fn context(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|cause| Error(format!("cannot {}: {cause}", what())))
    }
}
