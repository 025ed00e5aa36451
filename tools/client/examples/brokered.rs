// SPDX-License-Identifier: GPL-2.0

//! What a broker runs: reads through the descriptor that it was handed as
//! standard input.

use cpupeek_client::{Device, OpError};
use std::error::Error;
use std::io::stdin;
use std::os::fd::AsFd;

fn main() -> Result<(), Box<dyn Error>> {
    let device = Device::from_fd(stdin().as_fd().try_clone_to_owned()?)?;
    for cpu in 0..device.info().nr_cpu_ids {
        match device.read_msr(cpu, 0xe8) {
            Ok(value) => println!("CPU {cpu}: {value:#x}"),
            Err(cpupeek_client::Error::Op(OpError::CpuRefused)) => {
                println!("CPU {cpu}: not for us");
            }
            Err(error) => println!("CPU {cpu}: {error}"),
        }
    }
    Ok(())
}
