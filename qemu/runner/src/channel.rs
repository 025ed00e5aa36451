// SPDX-License-Identifier: GPL-2.0
//! The byte streams between QEMU and this process: socket pairs, so that there is nothing on disk to clean up and a dead
//! QEMU is an end of file.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

use crate::error::{Context, Result};

/// Who is speaking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The guest's serial console.
    Console,
    /// /init in the guest.
    Control,
    /// COMMAND's standard output.
    Out,
    /// COMMAND's standard error.
    Err,
    /// The list of registers that a described machine was asked for.
    Registers,
    /// The outer guest's serial console.
    OuterConsole,
    /// /init in the outer guest.
    OuterControl,
}

impl Source {
    /// Its name in QEMU and as a virtio port.
    pub fn name(self) -> &'static str {
        match self {
            Self::Console => "console",
            Self::Control => "control",
            Self::Out => "out",
            Self::Err => "err",
            Self::Registers => "registers",
            Self::OuterConsole => "outer-console",
            Self::OuterControl => "outer-control",
        }
    }
}

/// One stream.
pub struct Channel {
    /// Who speaks.
    pub source: Source,
    /// Our end.
    pub ours: UnixStream,
    /// QEMU's end, which stays open across exec and must be dropped once QEMU has it.
    theirs: OwnedFd,
}

impl Channel {
    /// A new stream.
    pub fn new(source: Source) -> Result<Self> {
        let what = || format!("make the channel '{}'", source.name());
        let (ours, theirs) = UnixStream::pair().context(what)?;
        // High numbers: shell scripts on the way to QEMU use the low ones for themselves.
        // SAFETY: F_DUPFD takes an open descriptor and a number and touches no memory.
        let high = unsafe { libc::fcntl(theirs.as_raw_fd(), libc::F_DUPFD, 40) };
        if high < 0 {
            return Err(io::Error::last_os_error()).context(what);
        }
        // SAFETY: fcntl() has just made this descriptor and nobody else knows its number.
        let theirs = unsafe { OwnedFd::from_raw_fd(high) };
        Ok(Self {
            source,
            ours,
            theirs,
        })
    }

    /// QEMU's -chardev for its end.
    pub fn chardev(&self) -> String {
        format!(
            "socket,id={},fd={}",
            self.source.name(),
            self.theirs.as_raw_fd()
        )
    }
}

/// A stream of COMMAND's output that ends with the run's nonce, because QEMU does not say when a port has been closed.
pub struct Tail {
    nonce: Vec<u8>,
    held: Vec<u8>,
    ended: bool,
}

impl Tail {
    /// A stream that ends with `nonce`.
    pub fn new(nonce: &str) -> Self {
        Self {
            nonce: nonce.as_bytes().to_vec(),
            held: Vec::new(),
            ended: false,
        }
    }

    /// Whether the nonce has come.
    pub fn ended(&self) -> bool {
        self.ended
    }

    /// Adds `bytes`; returns what is certain not to belong to the nonce.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        if self.ended {
            return Vec::new();
        }
        self.held.extend_from_slice(bytes);
        let nonce = &self.nonce;
        let end = self.held.windows(nonce.len()).position(|w| w == nonce);
        let keep_from = match end {
            Some(at) => {
                self.ended = true;
                self.held.truncate(at);
                at
            }
            None => {
                let longest = self.held.len().min(nonce.len() - 1);
                let partial = (1..=longest)
                    .rev()
                    .find(|n| self.held.ends_with(&nonce[..*n]))
                    .unwrap_or(0);
                self.held.len() - partial
            }
        };
        let rest = self.held.split_off(keep_from);
        std::mem::replace(&mut self.held, rest)
    }

    /// What is still held back, when nothing more will come.
    pub fn flush(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nonce_ends_the_stream_however_it_is_cut() {
        let stream = b"some bytes <en <end <end> never";
        for cut in 0..stream.len() {
            let mut tail = Tail::new("<end>");
            let mut out = tail.push(&stream[..cut]);
            out.extend(tail.push(&stream[cut..]));
            assert_eq!(out, b"some bytes <en <end ", "cut at {cut}");
            assert!(tail.ended());
        }
    }

    #[test]
    fn nothing_is_lost_without_it() {
        let mut tail = Tail::new("<end>");
        let mut out = tail.push(b"abc<e");
        assert_eq!(out, b"abc");
        out.extend(tail.push(b"x<"));
        out.extend(tail.flush());
        assert_eq!(out, b"abc<ex<");
        assert!(!tail.ended());
    }
}
