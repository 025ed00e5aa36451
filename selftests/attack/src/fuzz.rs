// SPDX-License-Identifier: GPL-2.0

//! Commands with something wrong in them, guided by what of the module they come through. What was
//! found once is kept in corpus/ioctl.txt, and replayed on every kernel.

mod input;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use cpupeek_selftests::device::{Device, Op, TSC_AUX};
use cpupeek_selftests::guest;
use cpupeek_selftests::kcov::{self, Kcov};
use cpupeek_selftests::sys::{self, Errno};
use cpupeek_selftests::tests::Env;
use cpupeek_selftests::util::Random;

use crate::calls::{self, World};
use crate::tests;
use input::Input;

tests! {
    "fuzz";
    corpus_is_replayed: [],
    guided_by_coverage: [],
}

const CORPUS: &str = include_str!("../corpus/ioctl.txt");

fn corpus() -> Vec<Input> {
    CORPUS
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| Input::parse(line).unwrap_or_else(|| panic!("corpus: {line}")))
        .collect()
}

/// What a command may say at all.
const ERRORS: [i32; 12] = [
    libc::EFAULT,
    libc::EINVAL,
    libc::E2BIG,
    libc::ENOMEM,
    libc::ENOTTY,
    libc::EPERM,
    libc::EACCES,
    libc::EOVERFLOW,
    libc::EOPNOTSUPP,
    libc::EBUSY,
    libc::ENOENT,
    libc::ENFILE,
];

fn run(input: &Input, world: &World, cpus: &[u32]) -> sys::Result<()> {
    let result = input.run(world, cpus);
    if let Err(Errno(error)) = result {
        assert!(ERRORS.contains(&error), "{input}: {:?}", Errno(error));
    }
    result
}

fn corpus_is_replayed(_: &Env) {
    let cpus = calls::cpus();
    let corpus = corpus();
    let mut outcomes = BTreeMap::new();
    for input in &corpus {
        // Each is what it was written down as.
        assert_eq!(Input::parse(&input.to_string()).as_ref(), Some(input));
        let world = World::new(&cpus);
        let result = run(input, &world, &cpus);
        *outcomes.entry(format!("{result:?}")).or_insert(0) += 1;
    }
    println!("{} inputs: {outcomes:?}", corpus.len());
    assert!(outcomes.len() > 3, "the corpus comes to various ends");
    guest::wait_until("no descriptor is left", || guest::module_users() == 0);
    assert_eq!(Device::open().msr(cpus[0], TSC_AUX) & 0xfff, cpus[0].into());
}

/// Inputs by coverage: each came somewhere where none before it did.
struct Corpus {
    inputs: Vec<Input>,
    seen: BTreeSet<u64>,
}

fn fuzz(env: &Env, seed: u64, cpus: &[u32]) {
    let mut random = Random::new(seed);
    let mut corpus = Corpus {
        inputs: corpus(),
        seen: BTreeSet::new(),
    };
    let given = corpus.inputs.len();
    let mut kcov = kcov::is_there().then(Kcov::start);
    let mut world = World::new(cpus);
    let (mut runs, mut good) = (0u64, 0u64);
    let start = Instant::now();
    while start.elapsed() < env.soak {
        let input = if (runs as usize) < given {
            corpus.inputs[runs as usize].clone()
        } else if random.below(8) == 0 || corpus.inputs.is_empty() {
            Input::random(&mut random)
        } else {
            let index = random.below(corpus.inputs.len() as u64) as usize;
            corpus.inputs[index].mutated(&mut random)
        };
        if let Some(kcov) = &mut kcov {
            kcov.take(|_| {});
        }
        let result = run(&input, &world, cpus);
        good += u64::from(result.is_ok());
        let mut new = false;
        if let Some(kcov) = &mut kcov {
            kcov.take(|address| new |= corpus.seen.insert(address));
        }
        if new && runs as usize >= given {
            corpus.inputs.push(input.clone());
            println!("new: {input}");
        }
        runs += 1;
        if runs % 40 == 0 || input.is_lasting() {
            world = World::new(cpus);
        }
    }
    println!(
        "{runs} commands, of which {good} ran; {} places in the module; {} inputs beyond the {given} of the corpus",
        corpus.seen.len(),
        corpus.inputs.len() - given,
    );
    assert!(good > 0 && good < runs, "both kinds");
    if kcov.is_some() {
        assert!(
            corpus.seen.len() > 100,
            "the module is built to be seen by KCOV"
        );
        print!("{}", kcov::places(&corpus.seen));
    }
}

fn guided_by_coverage(env: &Env) {
    let cpus = calls::cpus();
    if !kcov::is_there() {
        println!("this kernel has no KCOV: unguided");
        assert_ne!(std::env::var("CPUPEEK_FLAVOUR").as_deref(), Ok("debug"));
    }
    let as_root = sys::fork(|| fuzz(env, env.seed, &cpus));
    let as_user = sys::fork(|| {
        sys::set_capabilities(!(1 << sys::CAP_SYS_RAWIO));
        fuzz(env, env.seed + 1, &cpus);
    });
    as_root.expect_success();
    as_user.expect_success();
    guest::wait_until("no descriptor is left", || guest::module_users() == 0);
    let asked = Op::msr(cpus[0], TSC_AUX);
    calls::check_answer(&asked, &Device::open().read(asked), true);
}
