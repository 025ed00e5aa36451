// SPDX-License-Identifier: GPL-2.0

//! Tests of the text form.

use super::text::{parse, write, Machine, Vendor};
use cpupeek_client::AllowedRange;

fn range(lo: u32, hi: u32, marked_unsafe: bool) -> AllowedRange {
    AllowedRange {
        lo,
        hi,
        marked_unsafe,
    }
}

fn ranges(text: &str) -> Vec<AllowedRange> {
    let entries = parse(text.as_bytes()).unwrap_or_else(|e| panic!("{text}: {e:?}"));
    entries.iter().map(|entry| entry.range).collect()
}

const GOOD: &str = "\
# A list.
0x17
205-0xcf # both ends count
  0x611\tunsafe
0xe7 - 0xe8 UNSAFE # with spaces
[intel]
0x1a2\r
[amd family 0x19]
0xc0010015
[ any ]
0xc0000103-0xc0000104

0x12345 unsafe";

#[test]
fn all_forms() {
    let expected = [
        range(0x17, 0x17, false),
        range(0xcd, 0xcf, false),
        range(0x611, 0x611, true),
        range(0xe7, 0xe8, true),
        range(0x1a2, 0x1a2, false),
        range(0xc001_0015, 0xc001_0015, false),
        range(0xc000_0103, 0xc000_0104, false),
        range(0x12345, 0x12345, true),
    ];
    assert_eq!(ranges(GOOD), expected);
    assert_eq!(ranges(""), []);
    assert_eq!(ranges("# nothing\n\n  \t\n[intel]\n"), []);
}

#[test]
fn sections_are_for_machines() {
    let lines_for = |vendor, family| {
        let machine = Machine { vendor, family };
        let entries = parse(GOOD.as_bytes()).expect("a good list").into_iter();
        let for_it = entries.filter(|entry| entry.section.is_for(machine));
        for_it.map(|entry| entry.line).collect::<Vec<_>>()
    };
    assert_eq!(lines_for(Some(Vendor::Intel), 6), [2, 3, 4, 5, 7, 11, 13]);
    assert_eq!(lines_for(Some(Vendor::Amd), 0x19), [2, 3, 4, 5, 9, 11, 13]);
    assert_eq!(lines_for(Some(Vendor::Amd), 0x1a), [2, 3, 4, 5, 11, 13]);
    assert_eq!(lines_for(None, 0x19), [2, 3, 4, 5, 11, 13]);
    assert_eq!(Vendor::with_signature(b"AuthenticAMD"), Some(Vendor::Amd));
    assert_eq!(Vendor::with_signature(b"somebodyelse"), None);
}

#[test]
fn what_is_written_is_read() {
    for (lo, hi, marked_unsafe) in [
        (0x17, 0x17, false),
        (0xcd, 0xcf, true),
        (0x2000_0000, 0x2fff_ffff, true),
        (u32::MAX, u32::MAX, true),
    ] {
        let range = range(lo, hi, marked_unsafe);
        assert_eq!(ranges(&write(&range)), [range]);
    }
}

#[test]
fn problems_say_where_and_what_to_do() {
    for (text, line, column, words) in [
        ("x", 1, 1, "'x' is no number: write it in hex"),
        ("0x17\n\n  0x", 3, 3, "is no number"),
        ("0x17-", 1, 6, "'' is no number"),
        ("-5", 1, 1, "'' is no number"),
        ("0xé", 1, 1, "'0xé' is no number"),
        ("é0x17", 1, 1, "is no number"),
        ("0x17 é", 1, 6, "'é' is not understood"),
        ("0x100000000", 1, 1, "too large: 0xffffffff is the highest"),
        ("0x18-0x17", 1, 1, "write 0x17-0x18"),
        ("0x17 0x18", 1, 6, "one register or range in a line"),
        ("0x17 unsafe 0x18", 1, 13, "after 'unsafe'"),
        ("unsafe", 1, 1, "no register before 'unsafe'"),
        ("[intel", 1, 1, "no end"),
        ("  []", 1, 3, "no name"),
        ("[intel] 0x17", 1, 8, "after the section"),
        (
            "[vax]",
            1,
            2,
            "'vax' is no known maker: name one of intel, amd",
        ),
        ("[amd 25]", 1, 6, "write a section as"),
        ("[amd family x]", 1, 13, "'x' is no number"),
        ("[amd family 25 26]", 1, 6, "write a section as"),
        ("0x611", 1, 1, "CVE-2020-8694): write 'unsafe' after it"),
        (
            "0xc0000082",
            1,
            1,
            "kernel addresses and can never be listed: leave it out",
        ),
        (
            "0xc0000080-0xc0000090 unsafe",
            1,
            1,
            "0xc0000081-0xc0000083 holds kernel addresses",
        ),
        (
            "  0x12345",
            1,
            3,
            "not all of 0x12345 is known to be harmless",
        ),
        ("0-0xffffffff unsafe", 1, 1, "can never be listed"),
    ] {
        let problems = parse(text.as_bytes()).expect_err(text);
        let [problem] = problems.as_slice() else {
            panic!("{text}: {problems:?}");
        };
        assert_eq!(
            (problem.line, problem.column),
            (line, column),
            "{text}: {problem:?}"
        );
        assert!(problem.message.contains(words), "{text}: {problem:?}");
    }
    let problems = parse(b"0x17\n\xc3\xa9\xff").expect_err("not text");
    assert_eq!((problems[0].line, problems[0].column), (2, 2));
    // All of them are shown, and none hides another.
    let problems = parse(b"x\n0x17\ny\n").expect_err("two problems");
    assert_eq!(problems.len(), 2);
    // In a comment there may be anything.
    assert!(parse(b"0x17 # \xff\xfe\n").is_ok());
}

#[test]
fn words_of_a_message_cannot_confuse_a_terminal() {
    let problems = parse(b"\x1b[31m\x07").expect_err("no number");
    assert!(!problems[0].message.contains('\x1b'));
    let long = "z".repeat(100_000);
    let problems = parse(long.as_bytes()).expect_err("no number");
    assert!(problems[0].message.len() < 200);
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((x ^ (x >> 31)) % limit as u64) as usize
    }

    /// A list with some mistakes in it.
    fn text(&mut self) -> Vec<u8> {
        const PIECES: [&[u8]; 24] = [
            b"0x17",
            b"0xc0000082",
            b"-",
            b" ",
            b"\n",
            b"\t",
            b"unsafe",
            b"[",
            b"]",
            b"intel",
            b"amd family 0x19",
            b"any",
            b"#",
            b"0x",
            b"99999999999",
            b"\r\n",
            b"\xc3\xa9",
            b"\xff",
            b"\0",
            b"0xcd-0xcf",
            b"0x611 unsafe",
            b"+1",
            b"\xe2\x80\xa8",
            b"0-4294967295",
        ];
        let mut text = if self.below(3) == 0 {
            GOOD.as_bytes().to_vec()
        } else {
            Vec::new()
        };
        for _ in 0..1 + self.below(12) {
            let at = self.below(text.len() + 1);
            match self.below(8) {
                0 if at < text.len() => text[at] ^= 1 << self.below(8),
                1 if at < text.len() => {
                    text.remove(at);
                }
                2 => text.insert(at, self.below(256) as u8),
                _ => {
                    let piece = PIECES[self.below(PIECES.len())];
                    text.splice(at..at, piece.iter().copied());
                }
            }
        }
        text
    }
}

#[test]
fn malformed_lists() {
    let mut random = Random(1);
    let (mut good, mut bad) = (0, 0);
    while bad < 10_000 {
        let text = random.text();
        let lines: Vec<&[u8]> = text.split(|&byte| byte == b'\n').collect();
        match parse(&text) {
            Ok(entries) => {
                good += 1;
                let written: String = entries
                    .iter()
                    .map(|entry| write(&entry.range) + "\n")
                    .collect();
                let again = ranges(&written);
                assert!(again.iter().eq(entries.iter().map(|entry| &entry.range)));
            }
            Err(problems) => {
                bad += 1;
                assert!(!problems.is_empty());
                for problem in problems {
                    let line = lines[problem.line - 1];
                    let width = String::from_utf8_lossy(line).chars().count();
                    assert!((1..=width + 1).contains(&problem.column), "{problem:?}");
                    assert!(problem.message.contains(": "), "a remedy: {problem:?}");
                    assert!(!problem.message.contains(char::is_control), "{problem:?}");
                }
            }
        }
    }
    assert!(good > 100, "only {good} were good");
}
