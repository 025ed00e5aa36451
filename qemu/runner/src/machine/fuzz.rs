// SPDX-License-Identifier: GPL-2.0
//! Descriptions of machines with mistakes in them: each is compiled, or refused with the line.

use std::path::Path;

use cpupeek_mutate::{corpus, mutated, runs, Random};

use super::compile::compile;

const WORDS: &[&str] = &[
    "cpus = 4\n",
    "[[msr]]\n",
    "[[cpuid]]\n",
    "[processor]\n",
    "[groups]\n",
    "0xffffffffffffffff",
    "\"all\"",
    "0-3",
    "-1",
    "=",
    "[",
    "]",
    "\"",
    "\n",
    "1e9",
    "nan",
    "\u{e9}",
];

fn check(text: &str) -> bool {
    match compile(Path::new("machine.toml"), text) {
        Ok(machine) => {
            assert!((1..=255).contains(&machine.cpus));
            true
        }
        Err(error) => {
            let message = error.to_string();
            assert!(message.starts_with("machine.toml:"), "{message}");
            assert!(!message.trim_end().contains('\n'), "{message}");
            false
        }
    }
}

#[test]
fn fuzz_machine_descriptions() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut inputs = corpus(here.join("../machines"));
    let described = inputs.len();
    inputs.extend(corpus(here.join("corpus")));
    let text = |input: &[u8]| String::from_utf8_lossy(input).into_owned();
    let good = inputs.iter().filter(|input| check(&text(input))).count();
    assert_eq!(good, described, "the machines are right, the rest is not");
    let mut random = Random::new(3);
    // They are long, and each run takes a while.
    let mut good = 0;
    for _ in 0..runs() / 10 {
        good += u64::from(check(&text(&mutated(&mut random, &inputs, WORDS))));
    }
    assert!(good > 0 && good < runs() / 10, "{good} good ones");
}
