// SPDX-License-Identifier: GPL-2.0

//! A command with something changed, as a line of text that it can be made from again.

use std::fmt;
use std::os::fd::{FromRawFd, OwnedFd};

use cpupeek_selftests::device::{numbered, sized, uapi};
use cpupeek_selftests::sampler;
use cpupeek_selftests::sys::{self, Result};
use cpupeek_selftests::util::Random;

use crate::calls::{self, cpu_word, Call, On, Scene, World};
use crate::image::{Cut, Image};

/// A word of a part, replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Patch {
    part: usize,
    at: usize,
    value: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    call: usize,
    on: u32,
    cmd: u32,
    seed: u64,
    patches: Vec<Patch>,
    cut: Option<(usize, usize, bool)>,
}

fn value(random: &mut Random) -> u32 {
    match random.below(8) {
        0 => random.next() as u32,
        1 => 1 << random.below(32),
        2 => u32::MAX,
        3 => 48,
        4 => random.below(300) as u32,
        _ => random.below(4) as u32,
    }
}

impl Input {
    pub fn random(random: &mut Random) -> Self {
        let call = random.below(calls::count() as u64) as usize;
        Self {
            call,
            on: calls::nth(call).on as u32,
            cmd: calls::nth(call).cmd,
            seed: random.below(1000),
            patches: Vec::new(),
            cut: None,
        }
    }

    /// With one or more things changed.
    pub fn mutated(&self, random: &mut Random) -> Self {
        let mut new = self.clone();
        for _ in 0..=random.below(3) {
            match random.below(12) {
                0 => new.seed = random.below(1000),
                1 => new.on = random.below(On::ALL.len() as u64) as u32,
                2 => new.cmd = numbered(new.cmd, random.below(34) as u32),
                3 => new.cmd = sized(new.cmd, random.below(128) as usize),
                4 => new.cmd = calls::nth(new.call).cmd,
                5 => {
                    let bytes = 4 * (1 + random.below(12)) as usize;
                    new.cut = Some((random.below(3) as usize, bytes, random.below(2) == 0));
                }
                6 => new.cut = None,
                7 if !new.patches.is_empty() => {
                    let index = random.below(new.patches.len() as u64) as usize;
                    new.patches.swap_remove(index);
                }
                _ if new.patches.len() < 12 => new.patches.push(Patch {
                    part: [0, 0, 0, 1, 2][random.below(5) as usize],
                    at: 4 * random.below(24) as usize,
                    value: value(random),
                }),
                _ => {}
            }
        }
        new
    }

    fn call(&self) -> &'static Call {
        calls::nth(self.call)
    }

    /// What it does to a descriptor may last.
    pub fn is_lasting(&self) -> bool {
        let nr = self.cmd & 0xff;
        let of_that = |call: &&Call| call.cmd & 0xff == nr;
        calls::all().find(of_that).is_some_and(|call| call.lasting)
    }

    pub fn run(&self, world: &World, cpus: &[u32]) -> Result<()> {
        let mut scene = Scene {
            cpus,
            random: Random::new(self.seed),
            strict: false,
        };
        let cut = self.cut.map(|(part, bytes, readable)| Cut {
            part,
            bytes,
            prot: if readable {
                libc::PROT_READ
            } else {
                libc::PROT_NONE
            },
        });
        let mut image = Image::new(None);
        (self.call().fill)(&mut image, &mut scene);
        // A cut that fits the part, which is known only now.
        if let Some(cut) = cut {
            let fits = |&len: &usize| len >= cut.bytes;
            if image.lens().get(cut.part).is_some_and(fits) {
                image = Image::new(Some(cut));
                scene.random = Random::new(self.seed);
                (self.call().fill)(&mut image, &mut scene);
            }
        }
        let lens = image.lens();
        for patch in &self.patches {
            if lens.get(patch.part).is_some_and(|&len| patch.at + 4 <= len) {
                image.put(patch.part, patch.at, patch.value);
            }
        }
        image.seal();
        let on = On::ALL.into_iter().find(|&on| on as u32 == self.on);
        let fd = world.fd(on.unwrap_or(On::Device));
        let result = sys::ioctl(fd, self.cmd, image.argument());
        if result.is_ok() && self.is_unchanged() {
            (self.call().check)(&image, world, &scene);
        } else if result.is_ok() {
            self.undo(&image, world);
        }
        result
    }

    /// Closes what was opened, and ends what goes on.
    fn undo(&self, image: &Image, world: &World) {
        let is = |cmd: u32| self.cmd & 0xff == cmd & 0xff;
        let opened = if is(uapi::CPUPEEK_CONST_IOC_PREPARE) {
            Some(image.get::<uapi::cpupeek_prepare>(0, 0).fd)
        } else if is(uapi::CPUPEEK_CONST_IOC_SAMPLER) {
            Some(image.get::<uapi::cpupeek_sampler>(0, 0).fd)
        } else {
            None
        };
        if let Some(fd) = opened {
            assert!(fd > 2, "{self}");
            // SAFETY: The descriptor is new, and nobody else's.
            drop(unsafe { OwnedFd::from_raw_fd(fd) });
        }
        if is(sampler::WATCH) {
            let _ = world.sampler.watch(&[]);
        }
        if is(cpu_word::SET) {
            // Or the memory would change that comes to lie there next.
            let _ = world.device.ioctl(cpu_word::CLEAR, 0);
        }
    }

    fn is_unchanged(&self) -> bool {
        let call = self.call();
        self.patches.is_empty()
            && self.cut.is_none()
            && self.cmd == call.cmd
            && self.on == call.on as u32
    }

    pub fn parse(line: &str) -> Option<Self> {
        let mut input = Self {
            call: 0,
            on: 0,
            cmd: 0,
            seed: 0,
            patches: Vec::new(),
            cut: None,
        };
        let number = |text: &str| match text.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).ok(),
            None => text.parse().ok(),
        };
        for word in line.split(' ') {
            let (key, text) = word.split_once('=')?;
            match key {
                "call" => input.call = calls::all().position(|call| call.name == text)?,
                "on" => input.on = number(text)? as u32,
                "cmd" => input.cmd = number(text)? as u32,
                "seed" => input.seed = number(text)?,
                "patch" => {
                    let numbers: Option<Vec<u64>> = text.split(':').map(number).collect();
                    let [part, at, value] = numbers?[..] else {
                        return None;
                    };
                    input.patches.push(Patch {
                        part: part as usize,
                        at: at as usize,
                        value: value as u32,
                    });
                }
                "cut" => {
                    let numbers: Option<Vec<u64>> = text.split(':').map(number).collect();
                    let [part, bytes, readable] = numbers?[..] else {
                        return None;
                    };
                    input.cut = Some((part as usize, bytes as usize, readable != 0));
                }
                _ => return None,
            }
        }
        Some(input)
    }
}

impl fmt::Display for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "call={} on={} cmd={:#x} seed={}",
            self.call().name,
            self.on,
            self.cmd,
            self.seed
        )?;
        for patch in &self.patches {
            write!(f, " patch={}:{}:{:#x}", patch.part, patch.at, patch.value)?;
        }
        if let Some((part, bytes, readable)) = self.cut {
            write!(f, " cut={part}:{bytes}:{}", u32::from(readable))?;
        }
        Ok(())
    }
}
