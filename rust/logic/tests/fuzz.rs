// SPDX-License-Identifier: GPL-2.0

//! Random numbers in what the module computes: against a simple model where there is one, else for
//! panics and bounds.

use std::collections::{BTreeMap, BTreeSet};

use cpupeek_logic::budget::{Answer, Budget, Limits};
use cpupeek_logic::catalogue::{Decode, Identity};
use cpupeek_logic::energy::{Accumulator, Unit};
use cpupeek_logic::frequency::{is_window, rate, window, Sample};
use cpupeek_logic::plan::{Planner, Slice};
use cpupeek_logic::policy::{intersect, normalize, MsrSet, Range, Ranges, Shape};
use cpupeek_mutate::{runs, Random};

/// Numbers as registers have them: small ones, single bits, all bits, anything.
fn number(random: &mut Random) -> u64 {
    match random.below(6) {
        0 => random.below(100),
        1 => 1 << random.below(64),
        2 => u64::MAX - random.below(3),
        3 => (1 << 32) - 2 + random.below(4),
        _ => random.next() >> random.below(64),
    }
}

#[test]
fn fuzz_planner() {
    let mut random = Random::new(1);
    let mut index = vec![0; 64];
    for _ in 0..runs() {
        let nr_cpus = 1 + random.below(64) as usize;
        let room = random.below(70) as usize;
        let cpus: Vec<u32> = (0..random.below(100))
            .map(|_| random.below(72) as u32)
            .collect();
        let mut slices = vec![Slice::default(); room];
        let mut planner = Planner::new(&mut index[..nr_cpus], &mut slices);
        let mut model = BTreeMap::new();
        let counted: Vec<bool> = cpus
            .iter()
            .map(|&cpu| {
                let counted = planner.count(cpu);
                let known = model.contains_key(&cpu);
                let fits = (cpu as usize) < nr_cpus && (known || model.len() < room);
                assert_eq!(counted, fits);
                if counted {
                    *model.entry(cpu).or_insert(0) += 1;
                }
                counted
            })
            .collect();
        planner.layout();
        let mut places = BTreeSet::new();
        for (&cpu, _) in cpus.iter().zip(&counted).filter(|(_, &counted)| counted) {
            assert!(places.insert(planner.place(cpu).expect("was counted")));
        }
        assert_eq!(
            places.iter().max().map_or(0, |max| max + 1) as usize,
            places.len()
        );
        for slice in planner.finish() {
            assert_eq!(model[&slice.cpu], slice.len);
        }
        assert!(index.iter().all(|&entry| entry == 0));
    }
}

fn ranges(random: &mut Random) -> Vec<Range> {
    let base = [0, 0xc000_0000, u32::MAX - 5000][random.below(3) as usize];
    let mut ranges: Vec<_> = (0..random.below(12))
        .map(|_| {
            let lo = base + random.below(4000) as u32;
            let hi = lo + [0, 1, 70, 999][random.below(4) as usize];
            Range { lo, hi }
        })
        .collect();
    if random.below(20) == 0 {
        let lo = random.next() as u32;
        ranges.push(Range {
            lo,
            hi: lo.saturating_add(random.below(1 << 21) as u32),
        });
    }
    ranges
}

#[test]
fn fuzz_sets_of_registers() {
    let mut random = Random::new(2);
    let mut table = vec![0; Shape::SCRATCH];
    for _ in 0..runs() / 40 {
        let [given, others] = [ranges(&mut random), ranges(&mut random)];
        let is_in = |ranges: &[Range], reg: u32| ranges.iter().any(|r| r.lo <= reg && reg <= r.hi);
        let [mut one, mut other] = [given.clone(), others.clone()];
        let used = normalize(&mut one);
        one.truncate(used);
        let used = normalize(&mut other);
        other.truncate(used);
        let mut both = Vec::new();
        let found = intersect(&one, &other, |range| {
            both.push(range);
            Ok::<_, ()>(())
        });
        assert_eq!(found, Ok(()));
        let shape = Shape::new(&one, &mut table);
        let words = shape.map(|shape| {
            let mut words = vec![0; shape.words()];
            MsrSet::fill(shape, &one, &mut words);
            words
        });
        let edges = given.iter().chain(&others);
        let edges = edges.flat_map(|r| [r.lo, r.hi, r.lo.wrapping_sub(1), r.hi.wrapping_add(1)]);
        let anywhere: Vec<u32> = (0..8).map(|_| random.next() as u32).collect();
        for reg in edges.chain(anywhere) {
            let expected = is_in(&given, reg);
            assert_eq!(
                Ranges::new(&one).contains(reg),
                expected,
                "{reg:#x} {given:?}"
            );
            let in_both = expected && is_in(&others, reg);
            assert_eq!(Ranges::new(&both).contains(reg), in_both, "{reg:#x}");
            if let (Some(shape), Some(words)) = (shape, &words) {
                assert_eq!(
                    MsrSet::new(shape, words).contains(reg),
                    expected,
                    "{reg:#x} {given:?}"
                );
            }
        }
    }
}

#[test]
fn fuzz_decoders() {
    let mut random = Random::new(3);
    for _ in 0..runs() {
        let (value, constant) = (number(&mut random), number(&mut random));
        let (shift, width) = (random.below(64) as u8, 1 + random.below(64) as u8);
        let valid = (random.below(2) == 0).then(|| random.below(64) as u8);
        let all = [
            Decode::Bits {
                shift,
                width,
                valid,
            },
            Decode::Temperature,
            Decode::FidDid,
            Decode::Tsc,
            Decode::Energy,
            Decode::Frequency,
            Decode::FrequencyError,
            Decode::Residency,
        ];
        for decode in all {
            let _ = decode.number(value, constant);
        }
        let mut cpuid = |_: u32| [0; 4].map(|_: u32| number(&mut random) as u32);
        let identity = Identity::new(&mut cpuid);
        assert!(identity.family <= 0xf + 0xff && identity.model <= 0xff);
    }
}

#[test]
fn fuzz_frequencies() {
    let mut random = Random::new(4);
    let (mut given, mut checked) = (0, 0);
    for _ in 0..runs() {
        let mut sample = || Sample {
            tsc: number(&mut random),
            aperf: number(&mut random),
            mperf: number(&mut random),
            read: number(&mut random) >> 20,
        };
        let (old, new) = (sample(), sample());
        let khz = number(&mut random) as u32;
        let window_of = window(old.read, khz);
        assert!(window_of >= old.read);
        let _ = is_window(&old, &new, khz, u64::MAX);
        let result = rate(&old, &new, khz);
        assert!(result.permille.is_none_or(|permille| permille <= 1000));
        if let Some(rate) = result.frequency {
            given += 1;
            assert!(rate.error_ppm <= 10_000);
            // Against exact arithmetic, as far as the value is exact.
            let [a, m] =
                [(new.aperf, old.aperf), (new.mperf, old.mperf)].map(|(n, o)| n.wrapping_sub(o));
            let exact = u128::from(a) * u128::from(khz) / u128::from(m);
            let off = exact.abs_diff(rate.khz.into());
            if khz < 1 << 24 && a <= m.saturating_mul(16) {
                assert!(off <= 1 + (exact >> 28), "{exact} {rate:?}");
                checked += 1;
            }
        }
    }
    assert!(given > runs() / 1000, "{given} frequencies");
    assert!(
        checked > 0 && checked < given,
        "{checked} of {given} are possible"
    );
}

#[test]
fn fuzz_energy() {
    let mut random = Random::new(5);
    for _ in 0..runs() / 10 {
        let unit = Unit::from_register(number(&mut random)).unwrap_or(Unit::from_exponent(16));
        let mut energy = Accumulator::default();
        let (mut now, mut total, mut counter) = (0u64, 0u64, random.next() as u32);
        energy.update(counter, now, unit);
        for _ in 0..8 {
            // As fast as a counter can count, or slower.
            let elapsed = random.below(unit.shortest_wrap_ms());
            now += elapsed;
            let step = random.below(elapsed + 1) * u64::from(u32::MAX) / unit.shortest_wrap_ms();
            let step = step as u32;
            counter = counter.wrapping_add(step);
            total += u64::from(step);
            energy.update(counter, now, unit);
            assert_eq!(energy.take(unit), Some(unit.microjoules(total)));
        }
        energy.update(counter, now + unit.shortest_wrap_ms(), unit);
        assert_eq!(energy.take(unit), None, "what was missed is told");
        assert_eq!(energy.take(unit), Some(0));
    }
}

#[test]
fn fuzz_budgets() {
    let mut random = Random::new(6);
    for _ in 0..runs() / 10 {
        let limits = Limits {
            floor: number(&mut random) as u32,
            ceiling: number(&mut random) as u32,
        };
        let mut budget = Budget::unknown(limits);
        for _ in 0..20 {
            let took = number(&mut random);
            let answer = if took % 2 == 0 {
                Answer::Spun(took)
            } else {
                Answer::Slept(took)
            };
            budget = budget.learn(answer, limits);
            assert!(budget.spin(limits) <= limits.ceiling);
            let word = budget.into_word();
            assert_ne!(word, 0);
            budget = Budget::from_word(word).expect("not 0");
            assert_eq!(budget.into_word(), word);
        }
    }
}
