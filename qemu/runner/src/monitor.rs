// SPDX-License-Identifier: GPL-2.0
//! The state machine: it hears what the guest says on each channel and decides what became of the run.

use std::time::Duration;

use crate::console::{Complaint, Lines, Patterns};
use crate::outcome::{Death, Outcome, Stage};

/// Why nothing more will come from the guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// QEMU is gone.
    Exited(Death),
    /// The time limit passed.
    TimeLimit(Duration),
    /// This process got a signal.
    Signal(i32),
}

/// What has been learnt of a guest so far.
pub struct Monitor {
    patterns: Patterns,
    console: Lines,
    control: Lines,
    outer_console: Lines,
    outer_control: Lines,
    stage: Stage,
    last_line: Option<String>,
    panic: Option<String>,
    outer_panic: Option<String>,
    inner_death: Option<Death>,
    inner_log: Option<String>,
    complaints: Vec<Complaint>,
    module_error: Option<String>,
    unload_error: Option<String>,
    status: Option<u8>,
    output_needed: bool,
    output_seen: bool,
}

impl Monitor {
    /// A monitor of a guest that has not been started.
    pub fn new(patterns: Patterns, nested: bool, output_needed: bool) -> Self {
        Self {
            patterns,
            console: Lines::default(),
            control: Lines::default(),
            outer_console: Lines::default(),
            outer_control: Lines::default(),
            stage: if nested { Stage::Outer } else { Stage::Silent },
            last_line: None,
            panic: None,
            outer_panic: None,
            inner_death: None,
            inner_log: None,
            complaints: Vec::new(),
            module_error: None,
            unload_error: None,
            status: None,
            output_needed,
            output_seen: false,
        }
    }

    /// How far the guest has come.
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// A kernel here has panicked, so only its last lines are still to come.
    pub fn panicked(&self) -> bool {
        self.panic.is_some() || self.outer_panic.is_some()
    }

    /// Console bytes of the guest under test.
    pub fn hear_console(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.reach(Stage::Kernel);
        }
        for line in self.console.push(bytes) {
            self.hear_line(line);
        }
    }

    fn hear_line(&mut self, line: String) {
        if let Some(complaint) = self.patterns.complaint(&line) {
            if complaint.kind == "panic" && self.panic.is_none() {
                self.panic = Some(line.clone());
            }
            self.complaints.push(complaint);
        }
        if !line.trim().is_empty() {
            self.last_line = Some(line);
        }
    }

    /// Console bytes of the guest around it. Only a panic there matters: that kernel is not under test.
    pub fn hear_outer_console(&mut self, bytes: &[u8]) {
        for line in self.outer_console.push(bytes) {
            if line.contains("Kernel panic - not syncing") && self.outer_panic.is_none() {
                self.outer_panic = Some(line.clone());
            }
            if self.stage == Stage::Outer && !line.trim().is_empty() {
                self.last_line = Some(line);
            }
        }
    }

    /// COMMAND has written something.
    pub fn hear_output(&mut self) {
        self.output_seen = true;
    }

    /// Lines of /init in the guest under test.
    pub fn hear_control(&mut self, bytes: &[u8]) {
        for line in self.control.push(bytes) {
            let (word, rest) = line.split_once(' ').unwrap_or((&line, ""));
            match word {
                "booted" => self.reach(Stage::Init),
                "loading" => self.reach(Stage::Loading),
                "refused" => self.module_error = Some(rest.to_owned()),
                "start" => self.reach(Stage::Command),
                "exit" => {
                    self.status = rest.parse().ok();
                    self.reach(Stage::Leaving);
                }
                "stuck" => self.unload_error = Some(rest.to_owned()),
                "end" => self.reach(Stage::Done),
                _ => {}
            }
        }
    }

    /// Lines of /init in the outer guest.
    pub fn hear_outer_control(&mut self, bytes: &[u8]) {
        for line in self.outer_control.push(bytes) {
            let (word, rest) = line.split_once(' ').unwrap_or((&line, ""));
            match word {
                "inner" => self.reach(Stage::Silent),
                "log" => self.inner_log = Some(rest.to_owned()),
                "ended" => {
                    let status = rest.parse().unwrap_or(255);
                    self.inner_death = Some(death(status, self.inner_log.take()));
                }
                _ => {}
            }
        }
    }

    fn reach(&mut self, stage: Stage) {
        self.stage = self.stage.max(stage);
    }

    /// The result, now that nothing more will come.
    pub fn conclude(mut self, end: End) -> (Outcome, Vec<Complaint>) {
        if let Some(rest) = self.console.rest() {
            self.hear_line(rest);
        }
        let outcome = self.outcome(end);
        (outcome, self.complaints)
    }

    fn outcome(&self, end: End) -> Outcome {
        if let End::Signal(number) = end {
            return Outcome::Interrupted(number);
        }
        if let (Stage::Done, Some(status)) = (self.stage, self.status) {
            return self.finished(status);
        }
        if let (Stage::Done, Some(why)) = (self.stage, &self.module_error) {
            return Outcome::ModuleFailed(why.clone());
        }
        if let Some(line) = &self.panic {
            // The first complaint is the cause; "panic" is only what oops=panic and panic_on_warn make of it.
            let cause = self.complaints.first().map_or(line, |c| &c.line);
            return match self.stage {
                stage if stage < Stage::Init => Outcome::DiedEarly(cause.clone()),
                stage => Outcome::Panicked(stage, cause.clone()),
            };
        }
        if let Some(line) = &self.outer_panic {
            let how = format!("the outer guest panicked: {line}");
            return self.vanished(how);
        }
        match end {
            End::TimeLimit(limit) if self.stage == Stage::Outer => {
                self.vanished(format!("the outer guest hung for {} s", limit.as_secs()))
            }
            End::TimeLimit(limit) if self.stage == Stage::Silent => Outcome::Silent(limit),
            End::TimeLimit(limit) => Outcome::Hung {
                stage: self.stage,
                limit,
                last_line: self.last_line.clone(),
            },
            End::Exited(death) => self.exited(self.inner_death.clone().unwrap_or(death)),
            End::Signal(number) => Outcome::Interrupted(number),
        }
    }

    fn exited(&self, death: Death) -> Outcome {
        match (death, self.stage) {
            (death @ Death::Status(..), Stage::Silent | Stage::Outer) => Outcome::NotStarted(death),
            (Death::Clean, Stage::Silent) => Outcome::Silent(Duration::ZERO),
            (Death::Clean, _) => self.vanished("the guest ended".to_owned()),
            (death, stage) => Outcome::QemuDied(death, stage),
        }
    }

    fn vanished(&self, how: String) -> Outcome {
        if self.stage < Stage::Init {
            let last = self.last_line.as_deref().unwrap_or("(none)");
            return Outcome::DiedEarly(format!("{how}; last console line: {last}"));
        }
        Outcome::Vanished(self.stage, how)
    }

    fn finished(&self, status: u8) -> Outcome {
        if status != 0 {
            return Outcome::Finished(status);
        }
        if !self.complaints.is_empty() {
            return Outcome::Complained(self.complaints.clone());
        }
        if let Some(why) = &self.unload_error {
            return Outcome::UnloadFailed(why.clone());
        }
        let missing = self.patterns.missing();
        if !missing.is_empty() {
            return Outcome::NotProvoked(missing);
        }
        if self.output_needed && !self.output_seen {
            return Outcome::NoOutput;
        }
        Outcome::Finished(0)
    }
}

/// What an exit status as a shell reports it says of QEMU.
pub fn death(status: i32, last_words: Option<String>) -> Death {
    // QEMU turns the polite signals into a clean exit, and says so.
    let polite = last_words
        .as_deref()
        .and_then(|words| words.split_once("terminating on signal "))
        .and_then(|(_, rest)| rest.split_whitespace().next())
        .and_then(|number| number.parse().ok());
    match (status, polite) {
        (_, Some(number)) => Death::Signal(number),
        (0, None) => Death::Clean,
        (129..=192, None) => Death::Signal(status - 128),
        (_, None) => Death::Status(status, last_words),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);
    const KILLED: End = End::Exited(Death::Signal(9));
    const CLEAN: End = End::Exited(Death::Clean);

    fn monitor() -> Monitor {
        Monitor::new(Patterns::new(&[]).unwrap(), false, false)
    }

    fn running() -> Monitor {
        let mut m = monitor();
        m.hear_console(b"[    0.0] Linux version\n");
        m.hear_control(b"booted\nloading\nloaded\nst");
        assert_eq!(m.stage(), Stage::Loading);
        m.hear_control(b"art\n");
        m
    }

    fn outcome(m: Monitor, end: End) -> Outcome {
        m.conclude(end).0
    }

    #[test]
    fn a_status_counts_only_with_the_sentinel() {
        let mut m = running();
        m.hear_control(b"exit 3\nend\n");
        assert_eq!(outcome(m, CLEAN), Outcome::Finished(3));
        let mut m = running();
        m.hear_control(b"exit 0\n");
        assert!(matches!(
            outcome(m, CLEAN),
            Outcome::Vanished(Stage::Leaving, _)
        ));
        let mut m = running();
        m.hear_control(b"exit 0\nend\n");
        assert_eq!(outcome(m, KILLED), Outcome::Finished(0));
    }

    #[test]
    fn an_early_death_is_not_a_panic_of_the_module() {
        let panic = b"[    1.0] Kernel panic - not syncing: VFS\n";
        let mut early = monitor();
        early.hear_console(panic);
        assert!(matches!(outcome(early, CLEAN), Outcome::DiedEarly(_)));
        let mut late = running();
        late.hear_console(panic);
        assert!(late.panicked());
        assert!(matches!(
            outcome(late, CLEAN),
            Outcome::Panicked(Stage::Command, _)
        ));
        let mut loading = monitor();
        loading.hear_control(b"booted\nloading\n");
        loading.hear_console(b"[ 1.0] BUG: kernel NULL pointer dereference\n");
        loading.hear_console(panic);
        let Outcome::Panicked(Stage::Loading, line) = outcome(loading, CLEAN) else {
            panic!("not reported as a panic")
        };
        assert!(line.contains("NULL pointer"));
    }

    #[test]
    fn silence_a_hang_and_a_kill_differ() {
        assert_eq!(
            outcome(monitor(), End::TimeLimit(LIMIT)),
            Outcome::Silent(LIMIT)
        );
        let hung = outcome(running(), End::TimeLimit(LIMIT));
        assert!(matches!(
            &hung,
            Outcome::Hung { stage: Stage::Command, last_line: Some(line), .. } if line.contains("Linux version")
        ));
        assert_eq!(
            outcome(running(), KILLED),
            Outcome::QemuDied(Death::Signal(9), Stage::Command)
        );
        assert!(matches!(
            outcome(
                monitor(),
                End::Exited(Death::Status(1, Some("bad option".into())))
            ),
            Outcome::NotStarted(_)
        ));
    }

    #[test]
    fn complaints_fail_a_command_that_succeeded() {
        let mut m = running();
        m.hear_console(b"[    9.0] WARNING: CPU: 0 PID: 1 at f+0x1/0x2\n");
        m.hear_control(b"exit 0\nend\n");
        let (outcome, complaints) = m.conclude(CLEAN);
        assert_eq!(outcome.exit_status(), 208);
        assert_eq!(complaints.len(), 1);
        let mut m = running();
        m.hear_console(b"[    9.0] WARNING: no line end");
        m.hear_control(b"exit 7\nend\n");
        let (outcome, complaints) = m.conclude(CLEAN);
        assert_eq!((outcome.exit_status(), complaints.len()), (7, 1));
    }

    #[test]
    fn module_and_output() {
        let mut m = monitor();
        m.hear_control(b"booted\nloading\nrefused Invalid argument\nend\n");
        assert_eq!(
            outcome(m, CLEAN),
            Outcome::ModuleFailed("Invalid argument".into())
        );
        let mut m = running();
        m.hear_control(b"exit 0\nstuck Resource busy\nend\n");
        assert!(matches!(outcome(m, CLEAN), Outcome::UnloadFailed(_)));
        let mut m = Monitor::new(Patterns::new(&[]).unwrap(), false, true);
        m.hear_control(b"booted\nstart\nexit 0\nend\n");
        assert_eq!(outcome(m, CLEAN), Outcome::NoOutput);
    }

    #[test]
    fn the_outer_guest_is_told_apart() {
        let nested = || Monitor::new(Patterns::new(&[]).unwrap(), true, false);
        let mut m = nested();
        m.hear_outer_console(b"[ 1.0] Kernel panic - not syncing: x\n");
        assert!(matches!(outcome(m, CLEAN), Outcome::DiedEarly(how) if how.contains("outer")));
        let mut m = nested();
        m.hear_outer_console(b"[ 1.0] hello\n");
        assert!(matches!(
            outcome(m, End::TimeLimit(LIMIT)),
            Outcome::DiedEarly(how) if how.contains("hung for 60 s") && how.contains("hello")
        ));
        let mut m = nested();
        m.hear_outer_control(b"inner\nlog qemu: KVM internal error\nended 134\n");
        m.hear_console(b"x");
        assert_eq!(
            outcome(m, CLEAN),
            Outcome::QemuDied(Death::Signal(6), Stage::Kernel)
        );
    }

    #[test]
    fn polite_signals_are_seen() {
        let words = "qemu-system-x86_64: terminating on signal 15 from pid 7 (kill)";
        assert_eq!(death(0, Some(words.into())), Death::Signal(15));
        assert_eq!(death(137, None), Death::Signal(9));
        assert_eq!(death(0, Some("a warning".into())), Death::Clean);
    }
}
