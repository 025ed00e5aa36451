// SPDX-License-Identifier: GPL-2.0

//! What people write, with mistakes in it: it is understood or refused in words, and never the end of
//! the program.

use cpupeek_mutate::{corpus, mutated, runs, Random};

use crate::allow::text;
use crate::args;
use crate::cpus::CpuList;

const LIST_WORDS: &[&str] = &[
    "unsafe",
    "[intel]",
    "[any]",
    "[amd family ",
    "]",
    "0x",
    "-",
    "0xffffffff",
    "#",
    "\n",
    "0x10-0x11",
    " ",
    "\t",
    "\u{e9}",
    "\0",
];

fn check_list(input: &[u8]) -> bool {
    let entries = match text::parse(input) {
        Ok(entries) => entries,
        Err(problems) => {
            assert!(!problems.is_empty());
            for problem in problems {
                assert!(problem.line >= 1 && problem.column >= 1, "{problem:?}");
                assert!(!problem.message.is_empty(), "{problem:?}");
                assert!(!problem.message.contains('\n'), "{problem:?}");
            }
            return false;
        }
    };
    for entry in entries {
        assert!(entry.range.lo <= entry.range.hi);
        // What is written is read as the same again.
        let again =
            text::parse(text::write(&entry.range).as_bytes()).expect("what was parsed once");
        assert_eq!(again.len(), 1);
        assert_eq!(again[0].range, entry.range);
    }
    true
}

#[test]
fn fuzz_allowlists() {
    let corpus = corpus(concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/allowlist"));
    let mut random = Random::new(1);
    let mut good = corpus.iter().filter(|input| check_list(input)).count() as u64;
    for _ in 0..runs() {
        good += u64::from(check_list(&mutated(&mut random, &corpus, LIST_WORDS)));
    }
    assert!(good > runs() / 50 && good < runs(), "{good} good ones");
}

const WORDS: &[&str] = &[
    "0",
    "16",
    "0xc0000103",
    "4294967296",
    "0x",
    "4.1",
    "0xb.0x2",
    "0-3,7",
    "0-15:2",
    "0-15:1/4",
    "all",
    "-",
    ",",
    "100ms",
    "0.5s",
    "2",
    "1us",
    "\u{e9}",
    "99999999999999999999",
    "+1",
    " ",
];

#[test]
fn fuzz_words_of_the_command_line() {
    let corpus: Vec<_> = WORDS.iter().map(|word| word.as_bytes().to_vec()).collect();
    let mut random = Random::new(2);
    let mut good = 0;
    for _ in 0..runs() {
        let input = mutated(&mut random, &corpus, WORDS);
        let text = String::from_utf8_lossy(&input);
        if let Ok(number) = args::parse_number(&text) {
            assert_eq!(args::parse_number(&format!("{number:#x}")), Ok(number));
            good += 1;
        }
        for checked in args::check_words(&text) {
            good += u64::from(checked.is_ok());
            assert!(checked.err().is_none_or(|message| !message.is_empty()));
        }
        if let Ok(list) = text.parse::<CpuList>() {
            good += 1;
            // A machine of 16 CPUs: either what is asked for is there, or words say what is not.
            match list.expand(16) {
                Ok(cpus) => {
                    assert!(cpus.windows(2).all(|pair| pair[0] < pair[1]), "{text}");
                    assert!(cpus.iter().all(|&cpu| cpu < 16), "{text}");
                }
                Err(message) => assert!(message.contains("CPU"), "{text}: {message}"),
            }
        }
    }
    assert!(good > runs() / 50);
}
