// SPDX-License-Identifier: GPL-2.0

//! The terminal: drawn upon, listened to, and left as it was found.

use super::data::{Row, Source};
use super::frame::{self, Line, Tone, View};
use super::TopArgs;
use crate::{values, Failure, Outcome};
use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use crossterm::style::{Attribute, Color, Print, ResetColor, SetAttribute, SetForegroundColor};
use crossterm::terminal::{
    disable_raw_mode, enable_raw_mode, size, Clear, ClearType, EnterAlternateScreen,
    LeaveAlternateScreen,
};
use crossterm::{execute, queue};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

/// How long a signal may go unnoticed.
const PATIENCE: Duration = Duration::from_millis(100);

/// Where a terminal does not know its size, or says that it has none.
const SIZE: (u16, u16) = (80, 24);

/// The terminal is ours until this is dropped.
struct Taken;

/// A way to the terminal that no other thread can have locked.
static WAY: OnceLock<File> = OnceLock::new();

impl Taken {
    fn new() -> io::Result<Self> {
        let mut way = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        enable_raw_mode()?;
        let taken = Taken;
        execute!(way, EnterAlternateScreen, Hide)?;
        WAY.get_or_init(|| way);
        Ok(taken)
    }

    /// A terminal that has gone need not be given back.
    fn give_back() {
        if let Some(mut way) = WAY.get() {
            let _ = execute!(way, ResetColor, Show, LeaveAlternateScreen);
        }
        let _ = disable_raw_mode();
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        Self::give_back();
    }
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Quit,
    Draw,
    Nothing,
}

pub fn run(
    out: &mut impl Write,
    mut source: Source,
    mut view: View,
    args: &TopArgs,
) -> Result<Outcome, Failure> {
    let ended = end_with_signals()?;
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        Taken::give_back();
        before(panic);
    }));
    let taken = Taken::new()?;
    let colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());

    for _ in 0..args.repeat.unwrap_or(u64::MAX) {
        values::refresh_all()?;
        let mut rows = source.rows();
        let until = Instant::now() + args.interval;
        let mut step = Step::Draw;
        loop {
            if step == Step::Draw {
                draw(out, &mut rows, view, colours)?;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            step = match event::poll(left.min(PATIENCE)) {
                _ if ended.load(Ordering::Relaxed) => Step::Quit,
                Ok(true) => {
                    event::read().map_or(Step::Quit, |event| handle(&event, &mut view, rows.len()))
                }
                Ok(false) => Step::Nothing,
                // The terminal has gone.
                Err(_) => Step::Quit,
            };
            if step == Step::Quit {
                return Ok(Outcome::AllRead);
            }
        }
    }
    drop(taken);
    Ok(Outcome::AllRead)
}

/// Returns what is set when a signal says that it is over. Whoever does not notice, because reading from a
/// terminal that has gone does not end, is ended.
fn end_with_signals() -> io::Result<Arc<AtomicBool>> {
    let ended = Arc::new(AtomicBool::new(false));
    let mut signals = Signals::new([SIGTERM, SIGHUP, SIGINT, SIGQUIT])?;
    let seen = ended.clone();
    thread::Builder::new().spawn(move || {
        if signals.forever().next().is_some() {
            seen.store(true, Ordering::Relaxed);
            thread::sleep(5 * PATIENCE);
            Taken::give_back();
            std::process::exit(0);
        }
    })?;
    Ok(ended)
}

fn room() -> (u16, u16) {
    size()
        .ok()
        .filter(|&(w, h)| w != 0 && h != 0)
        .unwrap_or(SIZE)
}

fn handle(event: &Event, view: &mut View, rows: usize) -> Step {
    let key = match event {
        Event::Resize(..) => return Step::Draw,
        Event::Key(key) if key.kind != KeyEventKind::Release => key,
        _ => return Step::Nothing,
    };
    let page = usize::from(room().1).saturating_sub(3).max(1);
    let last = rows.saturating_sub(page);
    match key.code {
        KeyCode::Char('c' | 'd' | '\\') if key.modifiers.contains(KeyModifiers::CONTROL) => {
            return Step::Quit
        }
        KeyCode::Char('q') | KeyCode::Esc => return Step::Quit,
        KeyCode::Char('<') | KeyCode::Left => view.sort = view.sort.neighbour(-1),
        KeyCode::Char('>') | KeyCode::Right => view.sort = view.sort.neighbour(1),
        KeyCode::Char('r') => view.is_reversed = !view.is_reversed,
        KeyCode::Up => view.scrolled = view.scrolled.saturating_sub(1),
        KeyCode::Down => view.scrolled = (view.scrolled + 1).min(last),
        KeyCode::PageUp => view.scrolled = view.scrolled.saturating_sub(page),
        KeyCode::PageDown => view.scrolled = (view.scrolled + page).min(last),
        KeyCode::Home => view.scrolled = 0,
        KeyCode::End => view.scrolled = last,
        _ => return Step::Nothing,
    }
    Step::Draw
}

/// All lines in one write, each over what was there: nothing flickers.
fn draw(out: &mut impl Write, rows: &mut [Row], view: View, colours: bool) -> io::Result<()> {
    frame::sort(rows, view);
    let (width, height) = room();
    let lines = frame::lines(rows, view, width.into(), height.into());
    for (at, line) in (0u16..).zip(&lines) {
        queue!(out, MoveTo(0, at))?;
        put(out, line, colours)?;
        queue!(out, Clear(ClearType::UntilNewLine))?;
    }
    queue!(out, Clear(ClearType::FromCursorDown))?;
    out.flush()
}

fn put(out: &mut impl Write, line: &Line, colours: bool) -> io::Result<()> {
    match line.tone {
        Tone::Plain => {}
        Tone::Title => queue!(out, SetAttribute(Attribute::Reverse))?,
        Tone::Faint => queue!(out, SetAttribute(Attribute::Dim))?,
        Tone::Alarm if colours => queue!(out, SetForegroundColor(Color::Red))?,
        Tone::Alarm => queue!(out, SetAttribute(Attribute::Bold))?,
    }
    queue!(out, Print(&line.text), SetAttribute(Attribute::Reset))?;
    if colours {
        queue!(out, ResetColor)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::frame::Column;
    use super::*;
    use crossterm::event::KeyEvent;

    #[test]
    fn keys() {
        let mut view = View {
            sort: Column::Cpu,
            is_reversed: false,
            scrolled: 0,
        };
        let mut press = |code, modifiers| {
            let event = Event::Key(KeyEvent::new(code, modifiers));
            (handle(&event, &mut view, 1000), view)
        };
        let none = KeyModifiers::NONE;
        assert_eq!(press(KeyCode::Char('q'), none).0, Step::Quit);
        assert_eq!(press(KeyCode::Esc, none).0, Step::Quit);
        assert_eq!(
            press(KeyCode::Char('c'), KeyModifiers::CONTROL).0,
            Step::Quit
        );
        assert_eq!(press(KeyCode::Char('c'), none).0, Step::Nothing);
        let (step, view) = press(KeyCode::Char('>'), KeyModifiers::SHIFT);
        assert_eq!((step, view.sort), (Step::Draw, Column::Freq));
        assert!(press(KeyCode::Char('r'), none).1.is_reversed);
        assert_eq!(press(KeyCode::Down, none).1.scrolled, 1);
        assert!(press(KeyCode::End, none).1.scrolled >= 800);
        assert_eq!(press(KeyCode::Home, none).1.scrolled, 0);
        assert_eq!(press(KeyCode::Up, none).1.scrolled, 0);
    }

    #[test]
    fn no_colour_means_none() {
        for tone in [Tone::Plain, Tone::Title, Tone::Alarm, Tone::Faint] {
            let line = Line {
                text: "x".into(),
                tone,
            };
            let mut bytes = Vec::new();
            put(&mut bytes, &line, false).expect("a Vec takes everything");
            let text = String::from_utf8(bytes).expect("text");
            assert!(
                !text.contains("\x1b[3") && !text.contains("\x1b[4"),
                "{text:?}"
            );
        }
    }
}
