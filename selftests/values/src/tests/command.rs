// SPDX-License-Identifier: GPL-2.0

//! `cpupeek list` and `cpupeek show`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use cpupeek_selftests::guest;
use cpupeek_selftests::sys;
use cpupeek_selftests::tests::Env;
use serde_json::Value;

use super::{tests, On};
use crate::control::Control;
use crate::files::{self, number};
use crate::machine::{machine, Register};

tests! { "command";
    list_is_what_there_is: On::Machine, [],
    show_is_what_there_is: On::Machine, [],
    tables_fit: On::Machine, [],
    what_has_no_value: On::Once, [Hotplug],
    what_is_for_root: On::Once, [],
    bad_names: On::Once, [],
    watch: On::Once, [],
    without_the_module: On::Once, [Module],
}

/// Exit status, output, complaints.
fn run(arguments: &[&str]) -> (i32, String, String) {
    finish(Command::new("/bin/cpupeek").args(arguments))
}

fn run_as_user(arguments: &[&str]) -> (i32, String, String) {
    finish(
        Command::new("/bin/cpupeek")
            .args(arguments)
            .uid(65534)
            .gid(65534),
    )
}

fn finish(command: &mut Command) -> (i32, String, String) {
    let output = command.stdin(Stdio::null()).output().expect("it starts");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (
        output.status.code().expect("not by a signal"),
        text(output.stdout),
        text(output.stderr),
    )
}

#[track_caller]
fn json(arguments: &[&str]) -> Vec<Value> {
    let (status, output, complaints) = run(arguments);
    assert_eq!((status, complaints.as_str()), (0, ""), "{output}");
    serde_json::from_str(&output).expect("a JSON array")
}

fn list_is_what_there_is(_: &Env) {
    let mut found: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for cpu in guest::online() {
        for name in files::names(cpu) {
            found.entry(name).or_default().push(cpu);
        }
    }
    let listed: BTreeMap<String, Vec<u32>> = json(&["list", "--json"])
        .iter()
        .map(|row| {
            let name = row["name"].as_str().expect("a name").to_owned();
            let cpus = row["cpus"].as_array().expect("CPUs").iter();
            let here = |source: &&Value| source["here"] == true;
            let sources = row["sources"].as_array().expect("sources");
            assert_eq!(
                sources.iter().filter(here).count(),
                1,
                "{name} is from one place"
            );
            let number = |cpu: &Value| cpu.as_u64().expect("a number") as u32;
            (name, cpus.map(number).collect())
        })
        .collect();
    assert_eq!(listed, found);
    let all = json(&["list", "--all", "--json"]);
    assert!(all.len() > listed.len(), "no machine has everything");
}

fn show_is_what_there_is(_: &Env) {
    files::expire();
    files::set("cache_ms", 60_000);
    let rows = json(&["show", "--json"]);
    let mut shown = BTreeSet::new();
    for row in &rows {
        let cpu = row["cpu"].as_u64().expect("a CPU") as u32;
        let name = row["name"].as_str().expect("a name");
        shown.insert((cpu, name.to_owned()));
        let value = row["value"]
            .as_str()
            .map(|value| value.parse().expect("a number"));
        // The same snapshot, if no window was waited for.
        match files::try_number(cpu, name) {
            Ok(number) if name.starts_with("freq") || name.starts_with("c0") => {
                assert!(value.is_some() && number >= 0);
            }
            // What needs no snapshot goes on, and comes and goes.
            Ok(_) if ["steal_us", "vcpu_preempted"].contains(&name) => {
                assert!(value.is_some());
            }
            Ok(number) if ["aperf", "mperf", "tsc"].contains(&name) => {
                assert!(value.is_some_and(|value: i128| value <= number), "{row}");
            }
            Ok(number) => assert!(
                value == Some(number) || name.starts_with("energy") || is_counter(cpu, name),
                "{row}: {number}"
            ),
            Err(_) => assert_eq!(value, None, "{row}"),
        }
    }
    let all: BTreeSet<_> = guest::online()
        .into_iter()
        .flat_map(|cpu| files::names(cpu).into_iter().map(move |name| (cpu, name)))
        .collect();
    assert_eq!(shown, all);
}

/// Whether it goes on between two snapshots.
fn is_counter(cpu: u32, name: &str) -> bool {
    let register = match name {
        "pperf" => 0x64e,
        "smi" => 0x34,
        "ptsc" => 0xc001_0280,
        "irperf" => 0xc000_00e9,
        _ => return false,
    };
    matches!(
        machine().register(cpu, register),
        Some(Register::Rate(_) | Register::Step { .. })
    )
}

fn tables_fit(_: &Env) {
    for arguments in [
        &["list"][..],
        &["list", "--all"],
        &["show"],
        &["show", "tsc"],
    ] {
        let (status, output, complaints) = run(arguments);
        assert_eq!((status, complaints.as_str()), (0, ""), "{arguments:?}");
        for line in output.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }
    let (_, output, _) = run(&["show"]);
    println!("{output}");
    let titles = |line: &&str| line.starts_with("CPU ");
    let tables = output.lines().filter(titles).count();
    assert_eq!(
        output.contains("(COLUMNS="),
        tables > 1,
        "more than one, and how to have one"
    );
}

fn what_has_no_value(_: &Env) {
    let control = Control::new();
    let cpus = guest::online();
    let (first, last) = (cpus[0], cpus[cpus.len() - 1]);
    control.value(first, 0x19c, 0);
    guest::set_online(last, false);
    files::expire();
    let (status, output, complaints) = run(&["show", "temp_input"]);
    assert_eq!((status, complaints.as_str()), (1, ""), "{output}");
    let row = |cpu: u32| {
        let mut rows = output
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>());
        let row = rows.find(|row| row.first() == Some(&cpu.to_string().as_str()));
        row.expect("a row").get(1).map(|text| (*text).to_owned())
    };
    assert_eq!(row(first).as_deref(), Some("-"));
    assert_eq!(row(last).as_deref(), Some("offline"));
    assert!(
        output.contains("- there is no value at the moment"),
        "{output}"
    );
    // Without the CPU that is away, all is well.
    let list = format!("{first}-{}", last - 1);
    let rows = json(&["show", "temp_input", "--json", "--cpu", &list]);
    assert_eq!(rows[0]["error"]["errno"], "ENODATA");
    assert!(rows[1]["value"].is_string());
}

fn what_is_for_root(_: &Env) {
    let (status, output, complaints) = run_as_user(&["show"]);
    assert_eq!((status, complaints.as_str()), (0, ""), "{output}");
    assert!(
        output.contains("temp_input") && !output.contains("denied"),
        "{output}"
    );
    assert!(output.contains("run as root to see: tsc"), "{output}");
    let (status, output, _) = run_as_user(&["show", "tsc"]);
    assert_eq!(status, 1);
    assert!(
        output.contains("denied") && output.contains("as root"),
        "{output}"
    );
    let (status, output, _) = run_as_user(&["list"]);
    assert_eq!(status, 0, "{output}");
}

fn bad_names(_: &Env) {
    for (name, says) in [
        (
            "nonsense",
            "there is no value named 'nonsense': name one of tsc",
        ),
        ("ptsc", "no CPU of this machine has 'ptsc': name one of tsc"),
        ("../cpupeek/tsc", "there is no value named"),
        ("", "there is no value named ''"),
    ] {
        let (status, output, complaints) = run(&["show", name]);
        assert_eq!((status, output.as_str()), (2, ""), "{complaints}");
        assert!(complaints.contains(says), "{complaints}");
        assert_eq!(complaints.lines().count(), 1, "{complaints}");
    }
    let (status, _, complaints) = run(&["show", "tsc", "--cpu", "4096"]);
    assert_eq!(status, 2);
    assert!(
        complaints.contains("there is no CPU 4096 here"),
        "{complaints}"
    );
}

fn watch(_: &Env) {
    let mut child = Command::new("/bin/cpupeek")
        .args(["show", "tsc", "--cpu", "0", "--watch", "110ms"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    files::set("cache_ms", files::SHORTEST_CACHE_MS);
    let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    // Of each round two titles, the CPU's row, and an empty line.
    let rows = lines.map(|line| line.expect("text")).filter(|line| {
        let mut words = line.split_whitespace();
        words.next() == Some("0")
    });
    let values: Vec<i128> = rows
        .take(4)
        .map(|row| {
            row.split_whitespace()
                .nth(1)
                .expect("a value")
                .parse()
                .unwrap()
        })
        .collect();
    child.kill().expect("it runs until it is killed");
    child.wait().expect("it has ended");
    assert!(
        values.windows(2).all(|pair| pair[0] <= pair[1]),
        "{values:?}"
    );
    assert!(values[0] < values[3], "{values:?}");
    assert!(values[3] <= number(0, "tsc"));
}

fn without_the_module(env: &Env) {
    assert_eq!(sys::unload_module(guest::MODULE), Ok(()));
    for arguments in [&["list"][..], &["show"], &["show", "tsc", "--json"]] {
        let (status, output, complaints) = run(arguments);
        assert_eq!((status, output.as_str()), (3, ""));
        assert!(complaints.contains("modprobe cpupeek"), "{complaints}");
        assert_eq!(complaints.lines().count(), 1, "{complaints}");
    }
    assert_eq!(run(&["list", "--all"]).0, 0, "the catalogue can be told");
    assert_eq!(sys::load_module(&env.module, ""), Ok(()));
}
