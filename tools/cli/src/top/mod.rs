// SPDX-License-Identifier: GPL-2.0

//! `cpupeek top`: a table of the CPUs that is always the present.

mod data;
mod frame;
mod screen;

use crate::args::On;
use crate::terminal::can_be_drawn_on;
use crate::values::{self, Tree};
use crate::{Failure, Outcome};
use clap::Args;
use data::Source;
use frame::{Column, View};
use std::io::{self, IsTerminal, Write};
use std::thread;
use std::time::{Duration, Instant};

const COLUMNS: &str = "\
Columns: cpu; freq, while it ran; run, the part of the time that it ran; temp;
margin, degrees below throttling; hot, throttled by heat; core and pkg, watts;
steal, the part of the time that the host took.

Keys: q quits, < and > choose the column to sort by, r reverses, arrows and
page keys scroll. Where the output is no terminal, or a dumb one, tables
follow each other.";

#[derive(Args, Debug)]
#[command(after_help = COLUMNS)]
pub struct TopArgs {
    #[command(flatten)]
    pub on: On,

    /// Time between tables: 500ms, 2
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = crate::args::parse_pause)]
    pub interval: Duration,

    /// End after N tables
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub repeat: Option<u64>,

    /// Sort by one of the columns below
    #[arg(
        long,
        value_name = "COLUMN",
        default_value = "cpu",
        hide_default_value = true,
        hide_possible_values = true
    )]
    pub sort: Column,

    /// The lowest first, but the highest CPU
    #[arg(long)]
    pub reverse: bool,
}

pub fn run(out: &mut impl Write, args: &TopArgs) -> Result<Outcome, Failure> {
    let tree = Tree::open()?;
    let cpus = tree.cpus(&args.on.cpu)?;
    let source = Source::new(tree, cpus);
    let view = View {
        sort: args.sort,
        is_reversed: args.reverse,
        scrolled: 0,
    };
    if can_be_drawn_on() && io::stdin().is_terminal() {
        screen::run(out, source, view, args)
    } else {
        follow(out, source, view, args)
    }
}

/// Table after table, whole, for a pipe or a file.
fn follow(
    out: &mut impl Write,
    mut source: Source,
    view: View,
    args: &TopArgs,
) -> Result<Outcome, Failure> {
    // Rates need an earlier reading.
    values::refresh_all()?;
    source.rows();
    let start = Instant::now();
    let mut due = Duration::ZERO;
    for round in 0..args.repeat.unwrap_or(u64::MAX) {
        // A round that came late does not make the next ones hurry.
        due = due.saturating_add(args.interval).max(start.elapsed());
        thread::sleep(due.saturating_sub(start.elapsed()));
        values::refresh_all()?;
        let mut rows = source.rows();
        frame::sort(&mut rows, view);
        let mut lines = frame::lines(&rows, view, values::width(), rows.len() + 3);
        // There are no keys.
        lines.pop();
        if round > 0 {
            writeln!(out)?;
        }
        for line in lines {
            writeln!(out, "{}", line.text)?;
        }
        out.flush()?;
    }
    Ok(Outcome::AllRead)
}
