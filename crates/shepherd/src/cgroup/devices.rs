//! Devices that the processes of a leaf may not open or create, under any name.
//!
//! Only the listed devices are denied. Version 1 has a controller for that. With version 2, the kernel runs a small
//! BPF program whenever a process of the leaf opens or creates a device. The program is attached to the leaf and
//! removed with it. Programs add up: programs that a container runtime attached to parent groups still apply, and so
//! do programs of child groups.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};

use super::files::{create_group, put};
use super::spec::Place;
use crate::sys;

/// A character device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Device {
    /// Number of the driver.
    pub major: u32,
    /// Number of the device within its driver.
    pub minor: u32,
}

/// Denies devices to a version 1 group.
pub(super) fn deny_v1(group: &Path, devices: &[Device]) -> io::Result<()> {
    let file = group.join("devices.deny");
    // The kernel accepts one device per write.
    devices.iter().try_for_each(|Device { major, minor }| put(&file, &format!("c {major}:{minor} rwm")))
}

/// Denies devices to a group of the unified hierarchy.
pub(super) fn deny_unified(group: &Path, devices: &[Device]) -> io::Result<()> {
    let directory = File::open(group)?;
    attach(&load(&program(devices))?, &directory)
}

/// Whether devices can be denied to groups in `parent`, in the unified hierarchy.
pub(super) fn prepare_unified(parent: &Path) -> Place {
    let probe = parent.join(format!("devices-{}", std::process::id()));
    let tried = create_group(&probe).and_then(|()| deny_unified(&probe, &[]));
    let _ = std::fs::remove_dir(&probe);
    match tried {
        Ok(()) => Place::Unified,
        Err(error) => Place::Missing(format!("the kernel refuses device programs (bpf): {}", sys::explain(&error))),
    }
}

/// An instruction with the layout of the kernel's `struct bpf_insn`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Instruction {
    code: u8,
    /// Destination register in the lower four bits, source register in the upper four bits.
    registers: u8,
    offset: i16,
    immediate: i32,
}

impl Instruction {
    const fn new(code: u8, destination: u8, source: u8, offset: i16, immediate: i32) -> Self {
        // The order of C bit fields depends on the byte order.
        let registers =
            if cfg!(target_endian = "little") { source << 4 | destination } else { destination << 4 | source };
        Self { code, registers, offset, immediate }
    }

    /// `destination = *(u32 *)(source + offset)`
    const fn load_word(destination: u8, source: u8, offset: i16) -> Self {
        Self::new(0x61, destination, source, offset, 0)
    }

    /// `destination &= mask`, in 32 bits.
    const fn and(destination: u8, mask: i32) -> Self {
        Self::new(0x54, destination, 0, 0, mask)
    }

    /// Skips `count` instructions unless the register has this value.
    const fn skip_unless(register: u8, value: i32, count: i16) -> Self {
        Self::new(0x55, register, 0, count, value)
    }

    /// `destination = value`
    const fn set(destination: u8, value: i32) -> Self {
        Self::new(0xb7, destination, 0, 0, value)
    }

    /// Returns the value of register 0.
    const fn exit() -> Self {
        Self::new(0x95, 0, 0, 0, 0)
    }
}

/// Builds a BPF program that denies `devices` and allows all others. At its start, register 1 points to the request: a
/// word with access and device type, then major and minor number.
fn program(devices: &[Device]) -> Vec<Instruction> {
    const ANSWER: u8 = 0;
    const ASKED: u8 = 1;
    const KIND: u8 = 2;
    const MAJOR: u8 = 3;
    const MINOR: u8 = 4;
    const CHARACTER_DEVICE: i32 = 2;
    let mut all = vec![
        Instruction::load_word(KIND, ASKED, 0),
        Instruction::and(KIND, 0xffff),
        Instruction::load_word(MAJOR, ASKED, 4),
        Instruction::load_word(MINOR, ASKED, 8),
        Instruction::set(ANSWER, 1),
        Instruction::skip_unless(KIND, CHARACTER_DEVICE, (devices.len() * 4) as i16),
    ];
    for device in devices {
        all.extend([
            Instruction::skip_unless(MAJOR, device.major as i32, 3),
            Instruction::skip_unless(MINOR, device.minor as i32, 2),
            Instruction::set(ANSWER, 0),
            Instruction::exit(),
        ]);
    }
    all.push(Instruction::exit());
    all
}

/// Maximum number of devices per BPF program: a jump instruction cannot skip the code for more devices.
const MAX_DEVICES: usize = i16::MAX as usize / 4;

fn load(program: &[Instruction]) -> io::Result<OwnedFd> {
    #[repr(C)]
    #[derive(Default)]
    struct Load {
        program_type: u32,
        instruction_count: u32,
        instructions: u64,
        license: u64,
        log_level: u32,
        log_size: u32,
        log: u64,
        kernel_version: u32,
        flags: u32,
    }
    const LOAD: libc::c_int = 5;
    const OF_DEVICES: u32 = 15;
    if program.len() > MAX_DEVICES * 4 {
        return Err(io::Error::from_raw_os_error(libc::E2BIG));
    }
    let mut attributes = Load {
        program_type: OF_DEVICES,
        instruction_count: program.len() as u32,
        instructions: program.as_ptr() as u64,
        // Required, but irrelevant: the program calls no kernel functions.
        license: c"Apache-2.0".as_ptr() as u64,
        ..Load::default()
    };
    // SAFETY: the structure matches this command, and its pointers are valid during the call.
    let fd = match unsafe { bpf(LOAD, &mut attributes) } {
        // Kernels before 5.11 charge programs to locked memory, whose limit is often very low for services.
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
            // SAFETY: as above.
            with_locked_memory(|| unsafe { bpf(LOAD, &mut attributes) })?
        }
        other => other?,
    };
    // SAFETY: the kernel has just created this descriptor for this process; it is close-on-exec.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Attaches a BPF program to a group. Programs that are already attached stay in effect.
fn attach(program: &OwnedFd, group: &File) -> io::Result<()> {
    #[repr(C)]
    struct Attach {
        target: u32,
        program: u32,
        attach_type: u32,
        flags: u32,
    }
    const ATTACH: libc::c_int = 8;
    const TO_DEVICES: u32 = 6;
    const BESIDE_OTHERS: u32 = 2;
    let mut attributes = Attach {
        target: group.as_raw_fd() as u32,
        program: program.as_raw_fd() as u32,
        attach_type: TO_DEVICES,
        flags: BESIDE_OTHERS,
    };
    // SAFETY: the structure matches this command.
    unsafe { bpf(ATTACH, &mut attributes) }.map(|_| ())
}

/// The `bpf` system call.
///
/// # Safety
/// `attributes` must match the command, and its pointers must be valid.
unsafe fn bpf<T>(command: libc::c_int, attributes: &mut T) -> io::Result<RawFd> {
    // SAFETY: guaranteed by the caller.
    let returned = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attributes), size_of::<T>()) };
    Ok(sys::check(returned)? as RawFd)
}

/// Runs `what` without a limit on locked memory, if the limit can be raised. Restores the limit afterwards, because the
/// job would inherit the raised limit.
fn with_locked_memory<T>(what: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_MEMLOCK)?;
    let is_lifted = setrlimit(Resource::RLIMIT_MEMLOCK, libc::RLIM_INFINITY, libc::RLIM_INFINITY).is_ok();
    let done = what();
    if is_lifted {
        setrlimit(Resource::RLIMIT_MEMLOCK, soft, hard)?;
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Interprets the program and returns its result.
    fn answer(program: &[Instruction], asked: [u32; 3]) -> i64 {
        let mut registers = [0_i64; 11];
        let mut at = 0;
        loop {
            let Instruction { code, registers: both, offset, immediate } = program[at];
            let (destination, value) = (usize::from(both & 15), i64::from(immediate));
            at += 1;
            match code {
                0x61 => registers[destination] = i64::from(asked[offset as usize / 4]),
                0x54 => registers[destination] &= value,
                0xb7 => registers[destination] = value,
                0x55 if registers[destination] != value => at += offset as usize,
                0x55 => {}
                0x95 => return registers[0],
                other => panic!("no instruction {other:#x}"),
            }
        }
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn only_listed_devices_are_denied() {
        let device = |major, minor| Device { major, minor };
        let program = program(&[device(195, 0), device(195, 2), device(226, 128)]);
        let reads = |kind: u32, major, minor| answer(&program, [2 << 16 | kind, major, minor]);
        for (major, minor, allowed) in [(195, 0, 0), (195, 1, 1), (195, 2, 0), (226, 128, 0), (226, 0, 1), (1, 3, 1)] {
            assert_eq!(reads(2, major, minor), allowed, "{major}:{minor}");
            assert_eq!(reads(1, major, minor), 1, "block devices are not affected");
            assert_eq!(answer(&program, [1 << 16 | 2, major, minor]), allowed, "creating a device node is denied too");
        }
        assert_eq!(answer(&super::program(&[]), [2 << 16 | 2, 195, 0]), 1);
    }

    #[test]
    fn too_many_devices_are_refused() {
        let devices = vec![Device { major: 1, minor: 1 }; MAX_DEVICES + 1];
        assert_eq!(load(&program(&devices)).expect_err("too long").raw_os_error(), Some(libc::E2BIG));
    }
}
