// SPDX-License-Identifier: GPL-2.0
//! Checks a description and writes the lines for the library. Every mistake gets a sentence with the line.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::ops::Range;
use std::path::Path;

use super::toml::{Counter, File, Leaf, Msr, Number, Processor};
use super::Machine;
use crate::error::{Error, Result};

const MAX_CPUS: u32 = 255;

/// Compiles the description `text`.
pub fn compile(path: &Path, text: &str) -> Result<Machine> {
    let file: File = toml::from_str(text).map_err(|error| {
        let first = error.message().lines().next().unwrap_or("wrong").to_owned();
        mistake(path, text, error.span().unwrap_or(0..0), &first)
    })?;
    let cpus = *file.cpus.get_ref();
    let mut compiler = Compiler {
        path,
        text,
        cpus,
        groups: BTreeMap::new(),
        lines: format!("cpus {cpus}\nburst {}\n", u64::from(file.burst_us) * 1000),
        names: BTreeMap::new(),
        seen: BTreeSet::new(),
    };
    if !(1..=MAX_CPUS).contains(&cpus) {
        let what = format!("cpus is a number from 1 to {MAX_CPUS}, not {cpus}");
        return Err(compiler.at(&file.cpus.span(), &what));
    }
    let dies = file.dies.as_ref().map_or(1, |dies| *dies.get_ref());
    if let Some(given) = file.dies.as_ref().filter(|_| dies == 0 || cpus % dies != 0) {
        let what = format!("{cpus} CPUs cannot be in {dies} dies of as many each");
        return Err(compiler.at(&given.span(), &what));
    }
    for (name, list) in &file.groups {
        let set = compiler.list(list.get_ref(), &list.span())?;
        compiler.groups.insert(name.clone(), set);
    }
    compiler.processor(&file.processor)?;
    for leaf in &file.cpuid {
        compiler.leaf(leaf.get_ref(), &leaf.span())?;
    }
    for msr in &file.msr {
        compiler.msr(msr.get_ref(), &msr.span())?;
    }
    Ok(Machine {
        cpus,
        dies,
        append: file.append,
        lines: compiler.lines,
        names: compiler.names,
    })
}

fn mistake(path: &Path, text: &str, span: Range<usize>, what: &str) -> Error {
    let before = text.get(..span.start).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    Error::new(format!("{}:{line}: {what}", path.display()))
}

struct Compiler<'a> {
    path: &'a Path,
    text: &'a str,
    cpus: u32,
    groups: BTreeMap<String, Vec<u32>>,
    lines: String,
    names: BTreeMap<u32, String>,
    seen: BTreeSet<(u32, u32)>,
}

impl Compiler<'_> {
    fn at(&self, span: &Range<usize>, what: &str) -> Error {
        mistake(self.path, self.text, span.clone(), what)
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a String does not fail.
        let _ = writeln!(self.lines, "{line}");
    }

    /// `all`, a group, or numbers and ranges such as `0-3,6`.
    fn list(&self, list: &str, span: &Range<usize>) -> Result<Vec<u32>> {
        if list == "all" {
            return Ok((0..self.cpus).collect());
        }
        if let Some(group) = self.groups.get(list) {
            return Ok(group.clone());
        }
        let mut set = BTreeSet::new();
        for part in list.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (Ok(first), Ok(last)) = (first.trim().parse::<u32>(), last.trim().parse()) else {
                let what =
                    format!("'{list}' is no list of CPUs such as '0-3,6', no group and not 'all'");
                return Err(self.at(span, &what));
            };
            if first > last || last >= self.cpus {
                let what = format!(
                    "the CPUs '{part}' are not among the machine's, which are 0-{}",
                    self.cpus - 1
                );
                return Err(self.at(span, &what));
            }
            set.extend(first..=last);
        }
        Ok(set.into_iter().collect())
    }

    fn cpus_of(&self, list: Option<&toml::Spanned<String>>) -> Result<Vec<u32>> {
        match list {
            Some(list) => self.list(list.get_ref(), &list.span()),
            None => Ok((0..self.cpus).collect()),
        }
    }

    fn small(&self, number: Number, span: &Range<usize>, name: &str) -> Result<u32> {
        u32::try_from(number.0).map_err(|_| {
            let what = format!("{name} has 32 bits, and {:#x} has more", number.0);
            self.at(span, &what)
        })
    }

    fn processor(&mut self, processor: &Processor) -> Result<()> {
        let all: Vec<u32> = (0..self.cpus).collect();
        if let Some(vendor) = &processor.vendor {
            let bytes = vendor.get_ref().as_bytes();
            if bytes.len() != 12 {
                let what = "a vendor has 12 characters, such as GenuineIntel or AuthenticAMD";
                return Err(self.at(&vendor.span(), what));
            }
            for leaf in [0, 0x8000_0000] {
                for (register, at) in [(1, 0), (3, 4), (2, 8)] {
                    self.rule(&all, (leaf, None), register, (0, word(&bytes[at..])));
                }
            }
        }
        if let Some(family) = &processor.family {
            let signature = signature(*family.get_ref(), processor.model, processor.stepping)
                .ok_or_else(|| {
                    self.at(
                        &family.span(),
                        "family is at most 270, model at most 255 and stepping at most 15",
                    )
                })?;
            self.rule(&all, (1, None), 0, (0, signature));
        }
        if let Some(brand) = &processor.brand {
            let mut bytes = brand.get_ref().as_bytes().to_vec();
            if bytes.len() > 47 {
                return Err(self.at(&brand.span(), "a brand has at most 47 characters"));
            }
            bytes.resize(48, 0);
            for (n, word_bytes) in (0_u32..).zip(bytes.chunks(4)) {
                let leaf = 0x8000_0002 + n / 4;
                self.rule(&all, (leaf, None), (n % 4) as usize, (0, word(word_bytes)));
            }
        }
        Ok(())
    }

    fn rule(
        &mut self,
        cpus: &[u32],
        (leaf, subleaf): (u32, Option<u32>),
        register: usize,
        (keep, set): (u32, u32),
    ) {
        let subleaf = subleaf.map_or("*".to_owned(), |n| n.to_string());
        for cpu in cpus {
            self.line(format_args!(
                "cpuid {cpu} {leaf} {subleaf} {register} {keep} {set}"
            ));
        }
    }

    fn leaf(&mut self, leaf: &Leaf, span: &Range<usize>) -> Result<()> {
        let cpus = self.cpus_of(leaf.cpus.as_ref())?;
        let number = self.small(leaf.leaf, span, "leaf")?;
        let subleaf = leaf
            .subleaf
            .map(|n| self.small(n, span, "subleaf"))
            .transpose()?;
        let registers = [
            ("eax", leaf.eax, leaf.eax_set, leaf.eax_clear),
            ("ebx", leaf.ebx, leaf.ebx_set, leaf.ebx_clear),
            ("ecx", leaf.ecx, leaf.ecx_set, leaf.ecx_clear),
            ("edx", leaf.edx, leaf.edx_set, leaf.edx_clear),
        ];
        let mut any = false;
        for (register, (name, whole, set, clear)) in registers.into_iter().enumerate() {
            if whole.is_some() && (set.is_some() || clear.is_some()) {
                let what = format!("{name} cannot be given whole and changed by bits at once");
                return Err(self.at(span, &what));
            }
            let change = match (whole, set, clear) {
                (None, None, None) => continue,
                (Some(whole), _, _) => (0, self.small(whole, span, name)?),
                (None, set, clear) => (
                    !self.small(clear.unwrap_or_default(), span, name)?,
                    self.small(set.unwrap_or_default(), span, name)?,
                ),
            };
            any = true;
            self.rule(&cpus, (number, subleaf), register, change);
        }
        if !any {
            return Err(self.at(
                span,
                "a [[cpuid]] changes nothing: give it eax, ebx, ecx or edx, or one of them with _set or _clear",
            ));
        }
        Ok(())
    }

    fn msr(&mut self, msr: &Msr, span: &Range<usize>) -> Result<()> {
        let cpus = self.cpus_of(msr.cpus.as_ref())?;
        let register = self.small(msr.reg, span, "reg")?;
        if (0x800..0x900).contains(&register) || register >> 8 == 0x63_7075 {
            let what =
                format!("{register:#x} cannot be described: it is an x2APIC or a control register");
            return Err(self.at(span, &what));
        }
        let kinds = [
            msr.value.is_some(),
            msr.values.is_some(),
            msr.counter.is_some(),
            msr.fault,
        ];
        if kinds.into_iter().filter(|kind| *kind).count() != 1 {
            let what = format!(
                "the register {register:#x} needs exactly one of value, values, counter and fault"
            );
            return Err(self.at(span, &what));
        }
        if let Some(values) = msr.values.as_ref().filter(|v| v.len() != cpus.len()) {
            let what = format!(
                "the register {register:#x} has {} values for {} CPUs",
                values.len(),
                cpus.len()
            );
            return Err(self.at(span, &what));
        }
        let extra = extra(msr);
        for (n, cpu) in cpus.iter().enumerate() {
            if !self.seen.insert((*cpu, register)) {
                let what = format!("the register {register:#x} of CPU {cpu} is described twice");
                return Err(self.at(span, &what));
            }
            let value = match (&msr.counter, msr.value, &msr.values) {
                (Some(counter), _, _) => self.counter(counter, register, span)?,
                (None, Some(value), _) => format!("const {}", value.0),
                (None, None, Some(values)) => format!("const {}", values[n].0),
                (None, None, None) => "fault".to_owned(),
            };
            self.line(format_args!("msr {cpu} {register} {value}{extra}"));
        }
        if !msr.name.is_empty() {
            self.names.insert(register, msr.name.clone());
        }
        Ok(())
    }

    fn counter(&self, counter: &Counter, register: u32, span: &Range<usize>) -> Result<String> {
        let bits = counter.bits.unwrap_or(64);
        if !(1..=64).contains(&bits) {
            let what = format!("the counter {register:#x} has 1 to 64 bits, not {bits}");
            return Err(self.at(span, &what));
        }
        let (kind, pace) = match (counter.rate, counter.step) {
            (Some(rate), None) => ("count", rate.0),
            (None, Some(step)) => ("step", step.0),
            _ => {
                let what = format!(
                    "the counter {register:#x} needs either a rate (per second) or a step (per read)"
                );
                return Err(self.at(span, &what));
            }
        };
        Ok(format!("{kind} {} {pace} {bits}", counter.start.0))
    }
}

fn extra(msr: &Msr) -> String {
    let mut extra = String::new();
    if msr.writable {
        extra.push_str(" writable");
    }
    let delays = msr.delay_us.as_ref().map_or(&[][..], |d| d.as_slice());
    if !delays.is_empty() {
        let list: Vec<_> = delays
            .iter()
            .map(|us| (u64::from(*us) * 1000).to_string())
            .collect();
        extra.push_str(" delay ");
        extra.push_str(&list.join(","));
    }
    extra
}

/// EAX of leaf 1.
fn signature(family: u32, model: u32, stepping: u32) -> Option<u32> {
    if family > 270 || model > 255 || stepping > 15 {
        return None;
    }
    let (base, extended) = (family.min(15), family.saturating_sub(15));
    Some(extended << 20 | (model >> 4) << 16 | base << 8 | (model & 15) << 4 | stepping)
}

fn word(bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .take(4)
        .rev()
        .fold(0, |word, byte| word << 8 | u32::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        let machine = compile(Path::new("m.toml"), text).unwrap();
        machine.lines.lines().skip(2).map(str::to_owned).collect()
    }

    fn error(text: &str) -> String {
        let result = compile(Path::new("m.toml"), text);
        result.unwrap_err().to_string()
    }

    #[test]
    fn registers() {
        let text = "cpus = 4\n[groups]\nbig = \"0-1\"\n[[msr]]\nreg = 0x1b1\ncpus = \"big\"\nvalues = [1, \"0xffff_ffff_ffff_ffff\"]\n\
            [[msr]]\nreg = 0x1b1\ncpus = \"2,3\"\nfault = true\n[[msr]]\nreg = 0x34\ncpus = \"3\"\n\
            counter = { start = 5, step = 2, bits = 32 }\ndelay_us = [1, 20]\nwritable = true\n";
        assert_eq!(
            lines(text),
            [
                "msr 0 433 const 1",
                "msr 1 433 const 18446744073709551615",
                "msr 2 433 fault",
                "msr 3 433 fault",
                "msr 3 52 step 5 2 32 writable delay 1000,20000",
            ]
        );
    }

    #[test]
    fn the_processor() {
        let text = "cpus = 1\n[processor]\nvendor = \"GenuineIntel\"\nfamily = 6\nmodel = 0x97\nstepping = 2\n";
        let lines = lines(text);
        assert_eq!(
            lines[0],
            format!("cpuid 0 0 * 1 0 {}", u32::from_le_bytes(*b"Genu"))
        );
        assert_eq!(
            lines[1],
            format!("cpuid 0 0 * 3 0 {}", u32::from_le_bytes(*b"ineI"))
        );
        assert_eq!(lines[6], format!("cpuid 0 1 * 0 0 {}", 0x90672));
        assert_eq!(signature(0x19, 0x61, 2), Some(0xa60f12));
    }

    #[test]
    fn leaves_change_by_bits() {
        let text =
            "cpus = 1\n[[cpuid]]\nleaf = 6\nsubleaf = 0\neax_set = 1\neax_clear = 2\necx = 9\n";
        assert_eq!(
            lines(text),
            ["cpuid 0 6 0 0 4294967293 1", "cpuid 0 6 0 2 0 9"]
        );
    }

    #[test]
    fn mistakes_get_a_sentence_with_the_line() {
        for (text, sentence) in [
            (
                "cpus = 0",
                "m.toml:1: cpus is a number from 1 to 255, not 0",
            ),
            (
                "cpus = 4\ndies = 3\n",
                "m.toml:2: 4 CPUs cannot be in 3 dies of as many each",
            ),
            (
                "cpus = 4\ndies = 0\n",
                "m.toml:2: 4 CPUs cannot be in 0 dies",
            ),
            (
                "cpus = 2\n\n[[msr]]\nreg = 1\ncpu = \"0\"\n",
                "m.toml:5: unknown field `cpu`",
            ),
            (
                "cpus = 2\n[[msr]]\nreg = 1\n",
                "m.toml:2: the register 0x1 needs exactly one of",
            ),
            (
                "cpus = 2\n[[msr]]\nreg = 1\nvalue = 1\nfault = true\n",
                "m.toml:2: the register 0x1 needs exactly",
            ),
            (
                "cpus = 2\n[[msr]]\nreg = 1\nvalues = [1]\n",
                "m.toml:2: the register 0x1 has 1 values for 2 CPUs",
            ),
            (
                "cpus = 2\n[[msr]]\nreg = 1\nvalue = -4\n",
                "m.toml:4: invalid value: integer `-4`",
            ),
            (
                "cpus = 2\n[[msr]]\nreg = \"x1\"\nvalue = 4\n",
                "m.toml:3: invalid value: string \"x1\"",
            ),
            (
                "cpus = 2\n[[msr]]\nreg = 1\nvalue = 1\ncpus = \"0-2\"\n",
                "m.toml:5: the CPUs '0-2' are not among",
            ),
            (
                "cpus = 2\n[[msr]]\nreg = 1\nvalue = 1\ncpus = \"big\"\n",
                "m.toml:5: 'big' is no list of CPUs",
            ),
            (
                "cpus = 2\n[[msr]]\nreg = 1\nvalue = 1\n[[msr]]\nreg = 1\nfault = true\n",
                "m.toml:5: the register 0x1 of CPU 0 is described twice",
            ),
            (
                "cpus = 2\n[[msr]]\nreg = 0x802\nvalue = 1\n",
                "m.toml:2: 0x802 cannot be described",
            ),
            (
                "cpus = 2\n[[msr]]\nreg = 1\ncounter = { start = 1 }\n",
                "m.toml:2: the counter 0x1 needs either a rate",
            ),
            (
                "cpus = 2\n[[cpuid]]\nleaf = 1\n",
                "m.toml:2: a [[cpuid]] changes nothing",
            ),
            (
                "cpus = 2\n[processor]\nvendor = \"Intel\"\n",
                "m.toml:3: a vendor has 12 characters",
            ),
            ("cpus = 2\nhello\n", "m.toml:2: "),
        ] {
            let got = error(text);
            assert!(got.starts_with(sentence), "{got}");
        }
    }
}
