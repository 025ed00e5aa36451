// SPDX-License-Identifier: GPL-2.0

//! `cpupeek top` in a terminal, and in a pipe.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use cpupeek_selftests::guest;
use cpupeek_selftests::tests::Env;

use super::tests;
use crate::terminal::Terminal;

tests! {
    "top";
    keys_end_it: [],
    signals_end_it: [],
    it_ends_with_its_terminal: [],
    it_fits_any_size: [],
    it_sorts: [Cpus],
    a_pipe_gets_tables: [],
    a_pipe_that_closes_ends_it: [],
}

const ENTER: &str = "\x1b[?1049h";
const LEAVE: &str = "\x1b[?1049l";
const SHOW_CURSOR: &str = "\x1b[?25h";

fn command() -> Command {
    let mut command = Command::new("/bin/cpupeek");
    // The guest's is dumb.
    command.env("TERM", "xterm");
    command.args(["top", "--interval", "200ms"]);
    command
}

#[track_caller]
fn expect_left_as_found(terminal: &mut Terminal) {
    let status = terminal.end();
    assert!(status.success(), "{status}");
    assert!(!terminal.is_raw());
    let left = terminal
        .shown
        .rfind(LEAVE)
        .expect("the screen is given back");
    let entered = terminal.shown.rfind(ENTER).expect("the screen was taken");
    assert!(left > entered);
    assert!(terminal.shown.rfind(SHOW_CURSOR) > Some(entered));
}

fn keys_end_it(_: &Env) {
    for keys in ["q", "\x1b", "\x03", "x<>rq"] {
        let mut terminal = Terminal::run(&mut command(), 80, 24);
        terminal.wait_for("STEAL%", 1);
        assert!(terminal.is_raw());
        terminal.press(keys);
        expect_left_as_found(&mut terminal);
    }
}

fn signals_end_it(_: &Env) {
    for signal in [libc::SIGTERM, libc::SIGHUP, libc::SIGINT, libc::SIGQUIT] {
        let mut terminal = Terminal::run(&mut command(), 80, 24);
        terminal.wait_for("STEAL%", 0);
        terminal.signal(signal);
        expect_left_as_found(&mut terminal);
    }
}

fn it_ends_with_its_terminal(_: &Env) {
    let mut terminal = Terminal::run(&mut command(), 80, 24);
    terminal.wait_for("STEAL%", 0);
    terminal.hang_up();
    assert!(terminal.end().code().is_some(), "not by a signal");
}

/// The rows that a frame is drawn in.
fn rows_used(frame: &str) -> usize {
    let places = frame
        .split("\x1b[")
        .filter_map(|part| part.split_once(";1H"));
    places
        .filter_map(|(row, _)| row.parse().ok())
        .max()
        .unwrap_or(0)
}

fn it_fits_any_size(_: &Env) {
    let mut terminal = Terminal::run(&mut command(), 80, 24);
    terminal.wait_for("STEAL%", 0);
    for (columns, rows) in [(40, 4), (1, 1), (0, 0), (300, 100), (80, 24)] {
        terminal.resize(columns, rows);
        let drawn = terminal.shown.matches("\x1b[1;1H").count();
        // One that was begun before, and one that was not.
        terminal.wait_for("\x1b[1;1H", drawn + 2);
        let frames: Vec<_> = terminal.shown.split("\x1b[1;1H").collect();
        let frame = frames[frames.len() - 2];
        let room = if rows == 0 { 24 } else { rows.into() };
        assert!(rows_used(frame) <= room, "{columns}x{rows}: {frame:?}");
        let seen = frame.contains("STEAL%");
        assert_eq!(
            seen,
            columns == 0 || columns >= 80,
            "{columns}x{rows}: {frame:?}"
        );
    }
    terminal.press("q");
    expect_left_as_found(&mut terminal);
}

fn it_sorts(_: &Env) {
    let mut terminal = Terminal::run(&mut command(), 80, 24);
    terminal.wait_for("CPU*", 0);
    terminal.press("r");
    terminal.wait_for("CPU^", 0);
    terminal.press("<");
    terminal.wait_for("STEAL%^", 0);
    terminal.press("q");
    expect_left_as_found(&mut terminal);
}

fn a_pipe_gets_tables(_: &Env) {
    let output = command()
        .args(["--repeat", "2", "--reverse"])
        .stdin(Stdio::null())
        .output();
    let output = output.expect("the command");
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(!text.contains('\x1b'), "{text:?}");
    assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    let tables: Vec<_> = text.split("\n\n").collect();
    assert_eq!(tables.len(), 2, "{text}");
    for table in tables {
        let lines: Vec<_> = table.lines().collect();
        assert_eq!(
            lines.len(),
            2 + guest::online().len() + guest::offline().len()
        );
        let numbers = lines[2..].iter().map(|line| line.split_whitespace().next());
        let numbers: Vec<u32> = numbers
            .map(|n| n.expect("a CPU").parse().expect("it"))
            .collect();
        assert!(numbers.is_sorted_by(|a, b| a > b), "{numbers:?}");
    }
}

fn a_pipe_that_closes_ends_it(_: &Env) {
    let child = command()
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn();
    let mut child = child.expect("the command");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    assert!(lines
        .next()
        .expect("a line")
        .expect("text")
        .starts_with("cpupeek top"));
    drop(lines);
    let mut status = None;
    guest::wait_until("it ends", || {
        status = child.try_wait().expect("a child");
        status.is_some()
    });
    assert!(status.expect("just seen").success());
}
