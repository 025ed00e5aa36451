// SPDX-License-Identifier: GPL-2.0

//! A terminal that a program runs in, seen from the other side.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use cpupeek_selftests::guest;
use cpupeek_selftests::sys;

pub struct Terminal {
    /// None once it has been hung up.
    ours: Option<File>,
    programs: OwnedFd,
    child: Child,
    /// All that the program has written.
    pub shown: String,
}

fn size(columns: u16, rows: u16) -> libc::winsize {
    libc::winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}

impl Terminal {
    /// Runs a command in a terminal of its own.
    pub fn run(command: &mut Command, columns: u16, rows: u16) -> Self {
        let (mut ours, mut programs) = (-1, -1);
        let size = size(columns, rows);
        // SAFETY: Both numbers can be written; there is no name and there are no settings.
        let made = unsafe {
            libc::openpty(
                &mut ours,
                &mut programs,
                std::ptr::null_mut(),
                std::ptr::null(),
                &size,
            )
        };
        assert_eq!(made, 0, "openpty: {:?}", sys::last_error());
        // SAFETY: They have just been made, and are nobody else's.
        let (ours, programs) = unsafe { (File::from_raw_fd(ours), OwnedFd::from_raw_fd(programs)) };
        // The program must not hold our side, or it would never be hung up.
        // SAFETY: Sets a flag of a descriptor of ours.
        unsafe { libc::fcntl(ours.as_raw_fd(), libc::F_SETFD, libc::FD_CLOEXEC) };
        let end = || programs.try_clone().expect("a descriptor");
        command.stdin(end()).stdout(end()).stderr(end());
        // SAFETY: Only system calls between fork and exec.
        unsafe {
            command.pre_exec(|| {
                if libc::setsid() == -1 || libc::ioctl(0, libc::TIOCSCTTY, 0) == -1 {
                    return Err(std::io::Error::last_os_error());
                }
                Ok(())
            })
        };
        let child = command.spawn().expect("the program");
        Terminal {
            ours: Some(ours),
            programs,
            child,
            shown: String::new(),
        }
    }

    /// Takes in what is there now.
    fn look(&mut self) {
        let Some(ours) = &mut self.ours else {
            return;
        };
        while sys::readable(ours, 10) {
            let mut bytes = [0; 4096];
            match ours.read(&mut bytes) {
                Ok(len) if len != 0 => self.shown += &String::from_utf8_lossy(&bytes[..len]),
                _ => break,
            }
        }
    }

    /// Waits until the program has shown some words more than `times` times.
    #[track_caller]
    pub fn wait_for(&mut self, words: &str, times: usize) {
        let start = Instant::now();
        while self.shown.matches(words).count() <= times {
            self.look();
            let late = start.elapsed() > Duration::from_secs(60);
            assert!(!late, "no {words:?} in {:?}", self.shown);
        }
    }

    pub fn press(&mut self, keys: &str) {
        let ours = self.ours.as_mut().expect("not hung up");
        ours.write_all(keys.as_bytes()).expect("a terminal");
    }

    pub fn resize(&self, columns: u16, rows: u16) {
        let size = size(columns, rows);
        let ours = self.ours.as_ref().expect("not hung up");
        // SAFETY: The size is one.
        let done = unsafe { libc::ioctl(ours.as_raw_fd(), libc::TIOCSWINSZ, &size) };
        assert_eq!(done, 0, "{:?}", sys::last_error());
    }

    pub fn signal(&self, signal: i32) {
        // SAFETY: The child has not been waited for.
        unsafe { libc::kill(self.child.id() as libc::pid_t, signal) };
    }

    /// The user goes away, and the terminal with him.
    pub fn hang_up(&mut self) {
        self.look();
        self.ours = None;
    }

    /// Whether keys come one by one, unseen.
    pub fn is_raw(&self) -> bool {
        // SAFETY: All bits are a value of it.
        let mut settings: libc::termios = unsafe { std::mem::zeroed() };
        // SAFETY: The settings can be written.
        let got = unsafe { libc::tcgetattr(self.programs.as_raw_fd(), &mut settings) };
        assert_eq!(got, 0, "{:?}", sys::last_error());
        settings.c_lflag & libc::ICANON == 0
    }

    /// Waits for the program's end.
    #[track_caller]
    pub fn end(&mut self) -> ExitStatus {
        let mut status = None;
        guest::wait_until("the program ends", || {
            self.look();
            status = self.child.try_wait().expect("a child");
            status.is_some()
        });
        status.expect("just seen")
    }
}

/// The program has a session of its own, in which nobody else would find it.
impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
