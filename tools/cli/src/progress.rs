// SPDX-License-Identifier: GPL-2.0

//! A word to those who wait.

use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::{channel, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

/// Whoever waits for longer wants to know for what.
const PATIENCE: Duration = Duration::from_secs(2);

/// While it lives, says on standard error what is being waited for: after two seconds, and every two seconds again.
/// Nothing, if standard error is no terminal.
pub struct Progress {
    // Dropping it ends the thread.
    _ended: Option<Sender<()>>,
}

impl Progress {
    pub fn new(what: impl Into<String>) -> Self {
        if !io::stderr().is_terminal() {
            return Progress { _ended: None };
        }
        let what = what.into();
        let say = move |text: &str| {
            let _ = writeln!(io::stderr(), "cpupeek: {what}, {text}");
        };
        Progress {
            _ended: Some(Self::start(PATIENCE, say)),
        }
    }

    fn start(patience: Duration, say: impl Fn(&str) + Send + 'static) -> Sender<()> {
        let (ended, end) = channel::<()>();
        let start = Instant::now();
        // Without a thread there is no progress to be seen, and nothing else is lost.
        let _ = thread::Builder::new().spawn(move || {
            while end.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
                say(&format!("for {} s now", start.elapsed().as_secs()));
            }
        });
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_speaks_until_it_ends() {
        let (heard, hear) = channel();
        let ended = Progress::start(Duration::from_millis(1), move |text| {
            let _ = heard.send(text.to_owned());
        });
        assert_eq!(hear.recv().as_deref(), Ok("for 0 s now"));
        assert!(hear.recv().is_ok(), "again and again");
        drop(ended);
        // Its sender goes with the thread.
        while hear.recv().is_ok() {}
    }
}
