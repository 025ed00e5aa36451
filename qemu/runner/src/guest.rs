// SPDX-License-Identifier: GPL-2.0
//! Runs one QEMU and listens to it until the result is known.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::thread;
use std::time::{Duration, Instant};

use crate::channel::{Channel, Source, Tail};
use crate::error::{Context, Result};
use crate::monitor::{death, End, Monitor};
use crate::outcome::{Death, Stage};

/// How long a guest that has said its last word may take to go away.
const LINGER: Duration = Duration::from_secs(10);

/// What the threads tell the loop.
pub enum Event {
    /// Of the QEMU with this process id. Those of one that was killed can come while the next one runs.
    Qemu(libc::pid_t, News),
    /// This process got a signal.
    Signal(i32),
}

/// News of a QEMU.
pub enum News {
    /// Bytes from the guest.
    Data(Source, Vec<u8>),
    /// A stream ended.
    Closed(Source),
    /// It is gone.
    Exited,
}

/// The files that a run leaves.
pub struct Logs {
    directory: PathBuf,
    console: File,
    outer: Option<File>,
    /// What the library under QEMU reported.
    pub registers: Vec<u8>,
    stages: File,
    echo: bool,
}

impl Logs {
    /// Opens the logs of one boot.
    pub fn new(directory: &Path, nested: bool, echo: bool) -> Result<Self> {
        let open = |name: &str| {
            let path = directory.join(name);
            File::create(&path).context(|| format!("create '{}'", path.display()))
        };
        Ok(Self {
            directory: directory.to_owned(),
            console: open("console.log")?,
            outer: nested.then(|| open("outer-console.log")).transpose()?,
            registers: Vec::new(),
            stages: open("stages.log")?,
            echo,
        })
    }

    /// Notes when a stage was reached. It is for people, so a full disk is no reason to stop.
    fn stage(&mut self, after: Duration, stage: Stage) {
        let _ = writeln!(self.stages, "{:8.3} {stage}", after.as_secs_f32());
    }

    fn qemu(&self) -> PathBuf {
        self.directory.join("qemu.log")
    }

    fn write(&mut self, source: Source, bytes: &[u8]) -> io::Result<()> {
        match source {
            Source::Console => {
                if self.echo {
                    io::stderr().write_all(bytes)?;
                }
                self.console.write_all(bytes)
            }
            Source::OuterConsole => self.outer.as_mut().map_or(Ok(()), |f| f.write_all(bytes)),
            Source::Registers => {
                self.registers.extend_from_slice(bytes);
                Ok(())
            }
            Source::Control | Source::OuterControl | Source::Out | Source::Err => Ok(()),
        }
    }
}

/// One QEMU with its streams.
pub struct Guest<'a> {
    /// The command that starts it.
    pub command: Command,
    /// Its streams.
    pub channels: Vec<Channel>,
    /// What the streams of COMMAND's output end with.
    pub nonce: &'a str,
    /// The time limit.
    pub limit: Duration,
}

impl Guest<'_> {
    /// Runs QEMU to its end; `monitor` knows what happened.
    pub fn run(
        mut self,
        monitor: &mut Monitor,
        logs: &mut Logs,
        events: (&SyncSender<Event>, &Receiver<Event>),
    ) -> Result<End> {
        let (sender, receiver) = events;
        let log = File::create(logs.qemu()).context(|| "create qemu.log".to_owned())?;
        let mut child = spawn(&mut self.command, log)?;
        let group = child.id() as libc::pid_t;
        let mut control = None;
        let mut open = Vec::new();
        for channel in self.channels {
            let what = || "listen to the guest".to_owned();
            if channel.source == Source::Control {
                control = Some(channel.ours.try_clone().context(what)?);
            }
            open.push(channel.source);
            listen(group, channel, sender.clone());
        }
        watch(group, sender.clone());
        let mut hearing = Hearing {
            qemu: group,
            monitor,
            logs,
            out: Tail::new(self.nonce),
            err: Tail::new(self.nonce),
            control,
            open,
        };
        let end = hearing.until_end(receiver, self.limit);
        // SAFETY: kill() touches no memory. The group is QEMU's own: its leader has not been reaped yet.
        unsafe { libc::kill(-group, libc::SIGKILL) };
        hearing.drain(receiver);
        let status = child.wait().context(|| "wait for QEMU".to_owned())?;
        Ok(end?.unwrap_or_else(|| End::Exited(hearing.death(status))))
    }
}

struct Hearing<'a> {
    qemu: libc::pid_t,
    monitor: &'a mut Monitor,
    logs: &'a mut Logs,
    out: Tail,
    err: Tail,
    control: Option<std::os::unix::net::UnixStream>,
    open: Vec<Source>,
}

impl Hearing<'_> {
    /// Listens until QEMU is gone (`None`) or there is a reason to end it.
    fn until_end(&mut self, receiver: &Receiver<Event>, limit: Duration) -> Result<Option<End>> {
        let start = Instant::now();
        let mut deadline = start + limit;
        let mut lingering = false;
        let mut stage = None;
        loop {
            if stage.replace(self.monitor.stage()) != Some(self.monitor.stage()) {
                self.logs.stage(start.elapsed(), self.monitor.stage());
            }
            let finished = self.monitor.panicked() || self.monitor.stage() == Stage::Done;
            if finished && !lingering {
                lingering = true;
                deadline = deadline.min(Instant::now() + LINGER);
            }
            // An outer guest that is stuck must leave time for another boot.
            let outer = self.monitor.stage() == Stage::Outer;
            let limit = if outer { limit / 3 } else { limit };
            let left = match outer {
                true => start + limit,
                false => deadline,
            }
            .saturating_duration_since(Instant::now());
            match receiver.recv_timeout(left) {
                Ok(Event::Signal(number)) => return Ok(Some(End::Signal(number))),
                Ok(Event::Qemu(qemu, _)) if qemu != self.qemu => {}
                Ok(Event::Qemu(_, News::Exited)) => return Ok(None),
                Ok(Event::Qemu(_, news)) => {
                    if let Err(cause) = self.hear(news) {
                        if cause.kind() == io::ErrorKind::BrokenPipe {
                            return Ok(Some(End::Signal(libc::SIGPIPE)));
                        }
                        return Err(cause).context(|| "pass the guest's output on".to_owned());
                    }
                }
                Err(RecvTimeoutError::Timeout) => return Ok(Some(End::TimeLimit(limit))),
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
            }
        }
    }

    /// Takes in what is still on its way from a QEMU that has gone.
    fn drain(&mut self, receiver: &Receiver<Event>) {
        let deadline = Instant::now() + Duration::from_secs(5);
        while !self.open.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            match receiver.recv_timeout(left) {
                // A reader that went away is no reason to lose the logs.
                Ok(Event::Qemu(qemu, news)) if qemu == self.qemu => drop(self.hear(news)),
                Ok(_) => {}
                Err(_) => break,
            }
        }
        let _ = io::stdout().write_all(&self.out.flush());
        let _ = io::stderr().write_all(&self.err.flush());
    }

    fn hear(&mut self, news: News) -> io::Result<()> {
        let (source, bytes) = match news {
            News::Data(source, bytes) => (source, bytes),
            News::Closed(source) => {
                self.open.retain(|s| *s != source);
                return Ok(());
            }
            News::Exited => return Ok(()),
        };
        self.logs.write(source, &bytes)?;
        match source {
            Source::Console => self.monitor.hear_console(&bytes),
            Source::OuterConsole => self.monitor.hear_outer_console(&bytes),
            Source::OuterControl => self.monitor.hear_outer_control(&bytes),
            Source::Control => {
                self.monitor.hear_control(&bytes);
                self.acknowledge();
            }
            Source::Out => {
                let text = self.out.push(&bytes);
                self.pass(text, &mut io::stdout().lock())?;
            }
            Source::Err => {
                let text = self.err.push(&bytes);
                self.pass(text, &mut io::stderr().lock())?;
            }
            Source::Registers => {}
        }
        Ok(())
    }

    fn pass(&mut self, text: Vec<u8>, to: &mut impl Write) -> io::Result<()> {
        if !text.is_empty() {
            self.monitor.hear_output();
            to.write_all(&text)?;
            to.flush()?;
        }
        self.acknowledge();
        Ok(())
    }

    /// Tells /init that all of the output has arrived: a guest that powers off earlier loses what QEMU still holds.
    fn acknowledge(&mut self) {
        if self.monitor.stage() >= Stage::Leaving && self.out.ended() && self.err.ended() {
            if let Some(mut control) = self.control.take() {
                // If QEMU is gone there is nobody to tell.
                let _ = control.write_all(b"ack\n");
            }
        }
    }

    fn death(&self, status: ExitStatus) -> Death {
        let words = fs::read(self.logs.qemu()).unwrap_or_default();
        let last = String::from_utf8_lossy(&words)
            .lines()
            .rev()
            .find(|line| !line.trim().is_empty())
            .map(|line| line.trim().to_owned());
        match (status.code(), status.signal()) {
            (Some(code), _) => death(code, last),
            (None, number) => Death::Signal(number.unwrap_or(0)),
        }
    }
}

fn spawn(command: &mut Command, log: File) -> Result<Child> {
    let what = || "start QEMU through scripts/in-root".to_owned();
    let errors = log.try_clone().context(what)?;
    command
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(errors)
        .process_group(0);
    // SAFETY: between fork and exec only prctl() is called, which is safe there and touches no memory.
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            Ok(())
        });
    }
    command.spawn().context(what)
}

fn listen(qemu: libc::pid_t, channel: Channel, events: SyncSender<Event>) {
    let source = channel.source;
    let mut stream = channel.ours;
    thread::spawn(move || {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            match stream.read(&mut buffer) {
                Ok(0) => break,
                Ok(n) => {
                    if events
                        .send(Event::Qemu(qemu, News::Data(source, buffer[..n].to_vec())))
                        .is_err()
                    {
                        return;
                    }
                }
                Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        let _ = events.send(Event::Qemu(qemu, News::Closed(source)));
    });
}

/// Reports the end of `pid` without reaping it, so that its number stays its own.
fn watch(pid: libc::pid_t, events: SyncSender<Event>) {
    thread::spawn(move || loop {
        // SAFETY: a zeroed siginfo is valid, and waitid() only writes to it.
        let status = unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            libc::waitid(
                libc::P_PID,
                pid as libc::id_t,
                &mut info,
                libc::WEXITED | libc::WNOWAIT,
            )
        };
        if status == 0 || io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            let _ = events.send(Event::Qemu(pid, News::Exited));
            return;
        }
    });
}

/// Turns SIGINT, SIGTERM and SIGHUP into events. Called once, before there are other threads.
pub fn catch_signals(events: SyncSender<Event>) {
    let caught = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];
    // SAFETY: the set is initialised by sigemptyset() before it is used.
    let set = unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for signal in caught {
            libc::sigaddset(&mut set, signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
        set
    };
    thread::spawn(move || {
        let mut signal = 0;
        // SAFETY: both pointers are valid for the call.
        while unsafe { libc::sigwait(&set, &mut signal) } == 0 {
            if events.send(Event::Signal(signal)).is_err() {
                return;
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;
    use crate::console::Patterns;

    /// The end of one that was killed is heard of when the next one runs already, now and then.
    #[test]
    fn what_is_heard_of_one_that_was_killed_does_not_end_the_next() {
        let directory = std::env::temp_dir().join(format!("cpupeek-guest-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("a directory");
        let (sender, receiver) = sync_channel(16);
        let run = |script: &str, limit: Duration| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            let guest = Guest {
                command,
                channels: Vec::new(),
                nonce: "",
                limit,
            };
            let patterns = Patterns::new(&[]).expect("none");
            let mut monitor = Monitor::new(patterns, false, false);
            let mut logs = Logs::new(&directory, false, false).expect("logs");
            guest.run(&mut monitor, &mut logs, (&sender, &receiver))
        };
        for _ in 0..10 {
            let limit = Duration::from_millis(10);
            assert_eq!(
                run("sleep 100", limit).expect("runs"),
                End::TimeLimit(limit)
            );
            let end = run("sleep 0.1; exit 7", Duration::from_secs(60)).expect("runs");
            assert_eq!(end, End::Exited(Death::Status(7, None)));
        }
        fs::remove_dir_all(&directory).expect("it is ours");
    }
}
