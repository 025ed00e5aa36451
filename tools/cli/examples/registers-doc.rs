// SPDX-License-Identifier: GPL-2.0

//! Prints Documentation/registers.md from what the module knows of registers;
//! see scripts/gen-registers-doc.

use cpupeek_logic::policy::registers::{Rule, FREE, GUARDED, NEVER};

fn table(title: &str, text: &str, rules: &[Rule]) {
    println!("\n## {title}\n\n{text}\n");
    println!("| registers | why | source |\n|---|---|---|");
    for rule in rules {
        let (lo, hi) = (rule.range.lo, rule.range.hi);
        let registers = if lo == hi {
            format!("{lo:#x}")
        } else {
            format!("{lo:#x} to {hi:#x}")
        };
        println!("| {registers} | {} | {} |", rule.reason, rule.source);
    }
}

fn main() {
    println!("<!-- SPDX-License-Identifier: GPL-2.0 -->");
    println!("<!-- Made from rust/logic/policy/registers.rs by scripts/gen-registers-doc. -->\n");
    println!("# Registers, and for whom\n");
    println!(
        "Whoever opens `/dev/cpupeek` with CAP_SYS_RAWIO reads every register. Everybody else reads\n\
         what is on the allowlist, and this says what may be on it. The module enforces it, whatever\n\
         a program sends. How the list is set is in cpupeek-allowlist(5), how it works in\n\
         [policy.md](policy.md)."
    );
    table(
        "Never",
        "These can never be listed. With `lockdown=confidentiality` they are refused to root too.",
        NEVER,
    );
    table(
        "With a mark",
        "These can be listed with the mark `unsafe`. So can every register that no table here\n\
         names: nobody has looked at it.",
        GUARDED,
    );
    table(
        "Freely",
        "These can be listed freely, and are the list that the module begins with.",
        FREE,
    );
}
