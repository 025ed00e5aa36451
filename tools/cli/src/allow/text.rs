// SPDX-License-Identifier: GPL-2.0

//! The text form of the allowlist; cpupeek-allowlist(5) describes it.

use cpupeek_client::AllowedRange;
use cpupeek_logic::policy::registers::{most_guarded, Class, Rule};
use cpupeek_logic::policy::Range;
use std::fmt;

/// A maker of CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vendor {
    Intel,
    Amd,
    Hygon,
    Centaur,
    Zhaoxin,
}

impl Vendor {
    const ALL: [(Self, &'static str, &'static [u8; 12]); 5] = [
        (Vendor::Intel, "intel", b"GenuineIntel"),
        (Vendor::Amd, "amd", b"AuthenticAMD"),
        (Vendor::Hygon, "hygon", b"HygonGenuine"),
        (Vendor::Centaur, "centaur", b"CentaurHauls"),
        (Vendor::Zhaoxin, "zhaoxin", b"  Shanghai  "),
    ];

    fn named(name: &str) -> Option<Self> {
        let mut all = Self::ALL.iter();
        let found = all.find(|(_, known, _)| name.eq_ignore_ascii_case(known));
        found.map(|&(vendor, _, _)| vendor)
    }

    /// The one that CPUID calls itself that.
    pub fn with_signature(signature: &[u8; 12]) -> Option<Self> {
        let mut all = Self::ALL.iter();
        let found = all.find(|(_, _, known)| *known == signature);
        found.map(|&(vendor, _, _)| vendor)
    }
}

/// What a section of the list is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Section {
    /// All makers without.
    vendor: Option<Vendor>,
    /// All families without.
    family: Option<u32>,
}

/// The machine that a list is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    pub vendor: Option<Vendor>,
    pub family: u32,
}

impl Section {
    pub fn is_for(self, machine: Machine) -> bool {
        (self.vendor.is_none() || self.vendor == machine.vendor)
            && self.family.is_none_or(|family| family == machine.family)
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = Vendor::ALL
            .iter()
            .find(|(vendor, _, _)| Some(*vendor) == self.vendor);
        let name = known.map_or("another maker's", |(_, name, _)| name);
        write!(f, "{name} family {:#x}", self.family)
    }
}

/// A range of a list, and where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub section: Section,
    pub range: AllowedRange,
    pub line: usize,
    pub column: usize,
}

/// What is wrong, and where: lines and columns from 1, columns in characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub line: usize,
    pub column: usize,
    pub message: String,
}

/// A word of a line, with the column that it begins in.
#[derive(Clone, Copy)]
struct Word<'a> {
    text: &'a str,
    column: usize,
}

/// Parses a list. On any problem there is no list, but all problems, each line's
/// first.
pub fn parse(bytes: &[u8]) -> Result<Vec<Entry>, Vec<Problem>> {
    let mut entries = Vec::new();
    let mut problems = Vec::new();
    let mut section = Section::default();
    for (number, line) in (1..).zip(bytes.split(|&byte| byte == b'\n')) {
        match parse_line(line) {
            Ok(None) => {}
            Ok(Some(Item::Section(new))) => section = new,
            Ok(Some(Item::Range(range, column))) => entries.push(Entry {
                section,
                range,
                line: number,
                column,
            }),
            Err((column, message)) => problems.push(Problem {
                line: number,
                column,
                message,
            }),
        }
    }
    if problems.is_empty() {
        Ok(entries)
    } else {
        Err(problems)
    }
}

enum Item {
    Section(Section),
    Range(AllowedRange, usize),
}

type Fault = (usize, String);

fn fault<T>(column: usize, message: impl Into<String>) -> Result<T, Fault> {
    Err((column, message.into()))
}

fn parse_line(line: &[u8]) -> Result<Option<Item>, Fault> {
    // A comment may have anything in it.
    let content = line.split(|&byte| byte == b'#').next().unwrap_or(line);
    let text = match std::str::from_utf8(content) {
        Ok(text) => text,
        Err(error) => {
            let good = String::from_utf8_lossy(&content[..error.valid_up_to()]);
            return fault(
                good.chars().count() + 1,
                "this is not text: save the file as UTF-8",
            );
        }
    };
    let words = words(text);
    let Some(first) = words.first() else {
        return Ok(None);
    };
    if first.text.starts_with('[') {
        return parse_section(text).map(|section| Some(Item::Section(section)));
    }
    let range = parse_range(&words)?;
    check(range, first.column)?;
    Ok(Some(Item::Range(range, first.column)))
}

fn words(text: &str) -> Vec<Word<'_>> {
    let mut words = Vec::new();
    let mut start = None;
    let end = std::iter::once((text.len(), ' '));
    for (column, (at, c)) in (1..).zip(text.char_indices().chain(end)) {
        match (start, c.is_whitespace()) {
            (None, false) => start = Some((at, column)),
            (Some((from, column)), true) => {
                let text = &text[from..at];
                words.push(Word { text, column });
                start = None;
            }
            _ => {}
        }
    }
    words
}

/// `[any]`, `[VENDOR]` or `[VENDOR family NUMBER]`.
fn parse_section(text: &str) -> Result<Section, Fault> {
    const FORM: &str = "write a section as [intel], [amd family 0x19] or [any]";
    let open = text.chars().take_while(|&c| c != '[').count() + 1;
    let inside = text.trim().strip_prefix('[').unwrap_or_default();
    let Some((inside, rest)) = inside.split_once(']') else {
        return fault(open, format!("the section has no end: {FORM}"));
    };
    let close = open + inside.chars().count() + 1;
    if !rest.trim().is_empty() {
        return fault(
            close + 1,
            "there is something after the section: begin a new line",
        );
    }
    let words: Vec<Word<'_>> = words(inside)
        .into_iter()
        .map(|word| Word {
            column: word.column + open,
            ..word
        })
        .collect();
    let vendor = |word: &Word<'_>| match Vendor::named(word.text) {
        Some(vendor) => Ok(Some(vendor)),
        None => {
            let names: Vec<&str> = Vendor::ALL.iter().map(|(_, name, _)| *name).collect();
            let names = names.join(", ");
            fault(
                word.column,
                format!(
                    "'{}' is no known maker: name one of {names}, or any",
                    shown(word.text)
                ),
            )
        }
    };
    match words.as_slice() {
        [any] if any.text.eq_ignore_ascii_case("any") => Ok(Section::default()),
        [name] => Ok(Section {
            vendor: vendor(name)?,
            family: None,
        }),
        [name, family, number] if family.text.eq_ignore_ascii_case("family") => Ok(Section {
            vendor: vendor(name)?,
            family: Some(parse_number(*number)?),
        }),
        [] => fault(open, format!("the section has no name: {FORM}")),
        [_, other, ..] => fault(other.column, format!("this is no section: {FORM}")),
    }
}

/// `NUMBER`, `NUMBER-NUMBER`, and perhaps `unsafe`.
fn parse_range(words: &[Word<'_>]) -> Result<AllowedRange, Fault> {
    // Around the dash there may be spaces.
    let mark = words
        .iter()
        .position(|word| word.text.eq_ignore_ascii_case("unsafe"));
    let numbers = &words[..mark.unwrap_or(words.len())];
    if let Some(extra) = mark.and_then(|mark| words.get(mark + 1)) {
        return fault(
            extra.column,
            "there is something after 'unsafe': begin a new line, or a comment with #",
        );
    }
    let marked_unsafe = mark.is_some();
    let (lo, hi) = match numbers {
        [one] => match one.text.split_once('-') {
            None => {
                let number = parse_number(*one)?;
                (number, number)
            }
            Some((lo, hi)) => {
                let second = one.column + lo.chars().count() + 1;
                let lo = parse_number(Word { text: lo, ..*one })?;
                (
                    lo,
                    parse_number(Word {
                        text: hi,
                        column: second,
                    })?,
                )
            }
        },
        [lo, dash, hi] if dash.text == "-" => (parse_number(*lo)?, parse_number(*hi)?),
        [] => {
            let column = words.first().map_or(1, |word| word.column);
            return fault(
                column,
                "there is no register before 'unsafe': write it first",
            );
        }
        [_, extra, ..] => {
            return fault(
                extra.column,
                format!(
                    "'{}' is not understood: write one register or range in a line, then 'unsafe' if need be",
                    shown(extra.text)
                ),
            );
        }
    };
    if lo > hi {
        let column = numbers.first().map_or(1, |word| word.column);
        return fault(
            column,
            format!("the range ends before it begins: write {hi:#x}-{lo:#x}"),
        );
    }
    Ok(AllowedRange {
        lo,
        hi,
        marked_unsafe,
    })
}

/// Enough of a word to find it again, and nothing that could confuse a terminal.
fn shown(text: &str) -> String {
    let mut shown: String = text.escape_debug().take(40).collect();
    if text.escape_debug().count() > 40 {
        shown.push_str("...");
    }
    shown
}

fn parse_number(word: Word<'_>) -> Result<u32, Fault> {
    let (digits, radix) = match word.text.get(..2) {
        Some("0x" | "0X") => (&word.text[2..], 16),
        _ => (word.text, 10),
    };
    if digits.is_empty() || !digits.chars().all(|c| c.is_digit(radix)) {
        return fault(
            word.column,
            format!(
                "'{}' is no number: write it in hex (0x19c) or in decimal (412)",
                shown(word.text)
            ),
        );
    }
    match u32::from_str_radix(digits, radix) {
        Ok(number) => Ok(number),
        Err(_) => fault(
            word.column,
            format!(
                "{} is too large: 0xffffffff is the highest",
                shown(word.text)
            ),
        ),
    }
}

/// Refuses what the module would refuse, with the reason that it has no way to
/// tell.
fn check(range: AllowedRange, column: usize) -> Result<(), Fault> {
    let asked = Range {
        lo: range.lo,
        hi: range.hi,
    };
    match most_guarded(asked) {
        (Class::Never, Some(rule)) => fault(
            column,
            format!(
                "{} {} and can never be listed: leave {} out [{}]",
                named(rule, asked),
                rule.reason,
                if asked.lo == asked.hi { "it" } else { "them" },
                rule.source
            ),
        ),
        (Class::Guarded, Some(rule)) if !range.marked_unsafe => fault(
            column,
            format!(
                "{} {}: write 'unsafe' after it if that is acceptable here [{}]",
                named(rule, asked),
                rule.reason,
                rule.source
            ),
        ),
        (Class::Guarded, None) if !range.marked_unsafe => fault(
            column,
            format!(
                "not all of {} is known to be harmless: write 'unsafe' after it if it is",
                form(asked)
            ),
        ),
        _ => Ok(()),
    }
}

/// What a rule and a range have in common.
fn named(rule: &Rule, asked: Range) -> String {
    form(Range {
        lo: rule.range.lo.max(asked.lo),
        hi: rule.range.hi.min(asked.hi),
    })
}

fn form(range: Range) -> String {
    if range.lo == range.hi {
        format!("{:#x}", range.lo)
    } else {
        format!("{:#x}-{:#x}", range.lo, range.hi)
    }
}

/// A range as a line, as [`parse`] reads it.
pub fn write(range: &AllowedRange) -> String {
    let mark = if range.marked_unsafe { " unsafe" } else { "" };
    let numbers = Range {
        lo: range.lo,
        hi: range.hi,
    };
    format!("{}{mark}", form(numbers))
}
