// SPDX-License-Identifier: GPL-2.0

//! What a screen shows: lines of text no wider and no more than it has room for.

use super::data::Row;
use clap::ValueEnum;
use std::cmp::Ordering;

/// What rows are sorted by, and columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Column {
    /// Number of the CPU
    Cpu,
    /// Frequency while it ran
    Freq,
    /// Part of the time that it ran
    Run,
    /// Temperature of the core
    Temp,
    /// Degrees below throttling
    Margin,
    /// Whether it is throttled by heat
    Hot,
    /// Power of the core
    Core,
    /// Power of the package
    Pkg,
    /// Time that a virtual CPU waited for its host
    Steal,
}

impl Column {
    pub const ALL: [Self; 9] = [
        Self::Cpu,
        Self::Freq,
        Self::Run,
        Self::Temp,
        Self::Margin,
        Self::Hot,
        Self::Core,
        Self::Pkg,
        Self::Steal,
    ];

    fn title(self) -> &'static str {
        match self {
            Self::Cpu => "CPU",
            Self::Freq => "MHz",
            Self::Run => "RUN%",
            Self::Temp => "TEMP C",
            Self::Margin => "MARGIN C",
            Self::Hot => "HOT",
            Self::Core => "CORE W",
            Self::Pkg => "PKG W",
            Self::Steal => "STEAL%",
        }
    }

    /// Room for the title and a mark, and for what values there are.
    fn width(self) -> usize {
        (self.title().len() + 2).max(7)
    }

    fn number(self, row: &Row) -> Option<f64> {
        match self {
            Self::Cpu => Some(row.cpu.into()),
            Self::Freq => row.mhz,
            Self::Run => row.running,
            Self::Temp => row.celsius,
            Self::Margin => row.margin,
            Self::Hot => row.is_throttled.map(|hot| f64::from(u8::from(hot))),
            Self::Core => row.core_watts,
            Self::Pkg => row.package_watts,
            Self::Steal => row.steal,
        }
    }

    fn cell(self, row: &Row) -> String {
        let Some(number) = self.number(row) else {
            return "-".into();
        };
        match self {
            Self::Cpu => row.cpu.to_string(),
            Self::Freq | Self::Margin => format!("{number:.0}"),
            Self::Hot if number != 0.0 => "hot".into(),
            Self::Hot => "no".into(),
            _ => format!("{number:.1}"),
        }
    }

    /// The column after this one, or before.
    pub fn neighbour(self, by: isize) -> Self {
        let at = Self::ALL.iter().position(|&column| column == self);
        let next = at.unwrap_or(0) as isize + by;
        Self::ALL[next.rem_euclid(Self::ALL.len() as isize) as usize]
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    pub sort: Column,
    pub is_reversed: bool,
    /// How many rows are above the screen.
    pub scrolled: usize,
}

/// How a line is to stand out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    Plain,
    Title,
    Alarm,
    Faint,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub text: String,
    pub tone: Tone,
}

pub const KEYS: &str = "q quit   < > sort by   r reverse   up down PgUp PgDn scroll";

/// Sorts: numbers fall, so that what matters is on top, but CPUs rise. What has no value is last.
pub fn sort(rows: &mut [Row], view: View) {
    rows.sort_by(|a, b| {
        let numbers = (view.sort.number(a), view.sort.number(b));
        let order = match numbers {
            (Some(a), Some(b)) if view.sort == Column::Cpu => a.total_cmp(&b),
            (Some(a), Some(b)) => b.total_cmp(&a),
            (Some(_), None) => return Ordering::Less,
            (None, Some(_)) => return Ordering::Greater,
            (None, None) => Ordering::Equal,
        };
        let order = if view.is_reversed {
            order.reverse()
        } else {
            order
        };
        order.then(a.cpu.cmp(&b.cpu))
    });
}

/// A screen of `width` times `height`, of sorted rows. The last line but for the table is about keys.
pub fn lines(rows: &[Row], view: View, width: usize, height: usize) -> Vec<Line> {
    let room = height.saturating_sub(3);
    let hidden = rows.len().saturating_sub(room);
    let from = view.scrolled.min(hidden);
    let shown = rows.iter().skip(from).take(room);

    let offline = rows.iter().filter(|row| row.is_offline).count();
    let hot = rows
        .iter()
        .filter(|row| row.is_throttled == Some(true))
        .count();
    let mut about = format!("cpupeek top   {} CPUs", rows.len());
    for (count, what) in [(offline, "offline"), (hot, "throttled")] {
        if count != 0 {
            about += &format!(", {count} {what}");
        }
    }
    if hidden != 0 {
        about += &format!("   rows {}-{}", from + 1, (from + room).min(rows.len()));
    }

    // Columns that fit; nothing is cut in the middle of a number.
    let mut used = 0;
    let columns: Vec<_> = Column::ALL
        .into_iter()
        .take_while(|column| {
            used += column.width();
            used <= width
        })
        .collect();
    let mark = |column: Column| match (column == view.sort, view.is_reversed) {
        (false, _) => " ",
        (true, false) => "*",
        (true, true) => "^",
    };
    let join = |cell: &dyn Fn(Column) -> String| {
        let cells = columns
            .iter()
            .map(|&column| format!("{:>width$}", cell(column), width = column.width()));
        cells.collect::<String>()
    };
    let line = |tone, text: String| Line {
        text: text
            .chars()
            .take(width)
            .collect::<String>()
            .trim_end()
            .into(),
        tone,
    };
    let row = |row: &Row| {
        let tone = match (row.is_offline, row.is_throttled) {
            (true, _) => Tone::Faint,
            (_, Some(true)) => Tone::Alarm,
            _ => Tone::Plain,
        };
        let text = join(&|column| match (row.is_offline, column) {
            (true, Column::Freq) => "offline ".into(),
            (true, column) if column != Column::Cpu => String::new(),
            _ => column.cell(row) + " ",
        });
        line(tone, text)
    };
    let mut lines = vec![
        line(Tone::Plain, about),
        line(
            Tone::Title,
            join(&|column| format!("{}{}", column.title(), mark(column))),
        ),
    ];
    lines.extend(shown.map(row));
    lines.push(line(Tone::Faint, KEYS.into()));
    lines.truncate(height);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Row> {
        let row = |cpu: u32, mhz: Option<f64>| Row {
            cpu,
            mhz,
            running: mhz.map(|mhz| mhz / 100.0),
            celsius: Some(47.5),
            is_throttled: Some(cpu == 2),
            package_watts: Some(205.04),
            steal: Some(0.0),
            ..Row::default()
        };
        let offline = Row {
            cpu: 3,
            is_offline: true,
            ..Row::default()
        };
        vec![
            row(0, Some(800.0)),
            row(1, Some(3500.2)),
            row(2, None),
            offline,
        ]
    }

    const PLAIN: View = View {
        sort: Column::Cpu,
        is_reversed: false,
        scrolled: 0,
    };

    fn order(view: View) -> Vec<u32> {
        let mut rows = rows();
        sort(&mut rows, view);
        rows.iter().map(|row| row.cpu).collect()
    }

    #[test]
    fn sorting() {
        let by = |sort, is_reversed| {
            order(View {
                sort,
                is_reversed,
                scrolled: 0,
            })
        };
        assert_eq!(by(Column::Cpu, false), [0, 1, 2, 3]);
        assert_eq!(by(Column::Cpu, true), [3, 2, 1, 0]);
        assert_eq!(by(Column::Freq, false), [1, 0, 2, 3]);
        assert_eq!(by(Column::Freq, true), [0, 1, 2, 3]);
        assert_eq!(by(Column::Hot, false), [2, 0, 1, 3]);
        assert_eq!(Column::Cpu.neighbour(-1), Column::Steal);
        assert_eq!(Column::Steal.neighbour(1), Column::Cpu);
    }

    #[test]
    fn a_screen() {
        let lines = lines(&rows(), PLAIN, 80, 24);
        let texts: Vec<_> = lines.iter().map(|line| line.text.as_str()).collect();
        assert_eq!(texts[0], "cpupeek top   4 CPUs, 1 offline, 1 throttled");
        assert_eq!(
            texts[1],
            "   CPU*   MHz   RUN%  TEMP C  MARGIN C    HOT  CORE W  PKG W  STEAL%"
        );
        assert_eq!(
            texts[3],
            "     1   3500   35.0    47.5         -     no       -  205.0     0.0"
        );
        assert_eq!(texts[5], "     3 offline");
        assert_eq!(lines[4].tone, Tone::Alarm);
        assert_eq!(lines.len(), 7);
    }

    #[test]
    fn any_screen() {
        let many: Vec<_> = (0..300)
            .map(|cpu| Row {
                cpu,
                ..Row::default()
            })
            .collect();
        for (width, height) in [(0, 0), (1, 1), (10, 3), (40, 4), (80, 24), (500, 400)] {
            for scrolled in [0, 7, 1000] {
                let view = View { scrolled, ..PLAIN };
                let lines = lines(&many, view, width, height);
                assert!(lines.len() <= height);
                assert!(lines.iter().all(|line| line.text.len() <= width));
            }
        }
        let view = View {
            scrolled: 290,
            ..PLAIN
        };
        let lines = lines(&many, view, 80, 24);
        assert!(lines[0].text.ends_with("rows 280-300"), "{}", lines[0].text);
        assert!(lines[22].text.starts_with("   299"));
    }
}
