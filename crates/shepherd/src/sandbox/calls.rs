//! A search tree over the numbers of system calls, as the beginning of a filter.
//!
//! When a filter is installed, the kernel runs it once for every number, to remember which calls are always allowed. A list of
//! comparisons would make each start of a sandbox most of a millisecond slower.

use std::collections::BTreeMap;

use seccompiler::{BpfProgram, sock_filter};

/// What a filter does with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Return this value, an action of seccomp.
    Return(u32),
    /// Run the rest of the filter.
    Judge,
}

/// Loads the call's number.
const LOAD_NUMBER: sock_filter = instruction(0x20, 0);
const RETURN: u16 = 0x06;
const JUMP: u16 = 0x05;
const JUMP_IF_AT_LEAST: u16 = 0x35;

/// Place of the rest, until it is known.
const TO_THE_REST: u32 = u32::MAX;

const fn instruction(code: u16, k: u32) -> sock_filter {
    sock_filter { code, jt: 0, jf: 0, k }
}

/// Returns a filter that does what `verdicts` say about a call, and `other` for calls that are not there. `rest` is a whole
/// filter, which must check the architecture: numbers of others may have any verdict before it, unless `rest` refuses them.
pub(super) fn filter(verdicts: &BTreeMap<u32, Verdict>, other: Verdict, rest: BpfProgram) -> BpfProgram {
    // Where another verdict begins.
    let mut begins = vec![(0, other)];
    for (number, verdict) in verdicts {
        begins.retain(|(begin, _)| begin != number);
        begins.push((*number, *verdict));
        begins.push((number + 1, other));
    }
    begins.dedup_by_key(|(_, verdict)| *verdict);
    let mut program = vec![LOAD_NUMBER];
    program.extend(tree(&begins));
    let length = program.len();
    for (at, it) in program.iter_mut().enumerate() {
        if (it.code, it.k) == (JUMP, TO_THE_REST) {
            it.k = u32::try_from(length - at - 1).expect("a filter is short");
        }
    }
    program.extend(rest);
    program
}

/// Finds the last of `begins` that is not above the number.
fn tree(begins: &[(u32, Verdict)]) -> BpfProgram {
    if let [(_, verdict)] = begins {
        return vec![match verdict {
            Verdict::Return(action) => instruction(RETURN, *action),
            Verdict::Judge => instruction(JUMP, TO_THE_REST),
        }];
    }
    let (below, above) = begins.split_at(begins.len() / 2);
    let (low, high) = (tree(below), tree(above));
    let mut program = Vec::with_capacity(low.len() + high.len() + 2);
    match u8::try_from(low.len()) {
        Ok(jt) => program.push(sock_filter { code: JUMP_IF_AT_LEAST, jt, jf: 0, k: above[0].0 }),
        // Too far for a conditional jump.
        Err(_) => {
            let length = u32::try_from(low.len()).expect("a filter is short");
            program.push(sock_filter { code: JUMP_IF_AT_LEAST, jt: 0, jf: 1, k: above[0].0 });
            program.push(instruction(JUMP, length));
        }
    }
    program.extend(low);
    program.extend(high);
    program
}

#[cfg(test)]
mod tests {
    use super::*;

    const REST: u32 = 7;

    /// Runs a filter of the instructions that this module uses.
    fn run(program: &[sock_filter], number: u32) -> u32 {
        let mut at = 0;
        loop {
            let it = &program[at];
            at += 1;
            match it.code {
                0x20 => assert_eq!(it.k, 0),
                RETURN => return it.k,
                JUMP => at += it.k as usize,
                JUMP_IF_AT_LEAST => at += usize::from(if number >= it.k { it.jt } else { it.jf }),
                other => panic!("no such instruction: {other}"),
            }
        }
    }

    fn check(verdicts: impl IntoIterator<Item = (u32, Verdict)>, most: u32) {
        let verdicts: BTreeMap<u32, Verdict> = verdicts.into_iter().collect();
        let program = filter(&verdicts, Verdict::Return(1), vec![instruction(RETURN, REST)]);
        for number in (0..most).chain([0x4000_0000, u32::MAX]) {
            let expected = match verdicts.get(&number) {
                None => 1,
                Some(Verdict::Return(action)) => *action,
                Some(Verdict::Judge) => REST,
            };
            assert_eq!(run(&program, number), expected, "{number}");
        }
    }

    #[test]
    fn every_number_gets_its_verdict() {
        check([], 3);
        check([(0, Verdict::Judge)], 3);
        check([(0, Verdict::Return(2)), (1, Verdict::Return(2)), (2, Verdict::Judge)], 9);
        check((5..9).map(|number| (number, Verdict::Return(2))), 12);
        // Distances above 255 instructions.
        check((0..2000).step_by(2).map(|number| (number, Verdict::Return(2 + number % 3))), 2100);
    }
}
