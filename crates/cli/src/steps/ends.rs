//! How steps end: for their record, and for users.

use hostler_remote::step::{OUT_OF_MEMORY, StepError};
use hostler_remote::{Report, StepOutcome};

use crate::exit;
use crate::failure::Failure;

/// How a step ended, for its record.
pub(crate) fn outcome(ends: &[Result<Report, StepError>]) -> StepOutcome {
    let code = |end: &Result<Report, StepError>| match end {
        Ok(report) if report.out_of_memory => OUT_OF_MEMORY,
        Ok(report) => report.code,
        Err(_) => 1,
    };
    let reports = || ends.iter().filter_map(|end| end.as_ref().ok());
    StepOutcome {
        exit_code: ends.iter().map(code).max().unwrap_or(0),
        cpu_ms: reports().map(|report| report.cpu_ms).sum(),
        system_ms: reports().map(|report| report.system_ms).sum(),
        peak_memory_bytes: reports().filter_map(|report| report.memory_peak_bytes).max(),
    }
}

/// The failure that users see for a step's error.
pub(crate) fn failure(error: &StepError) -> Failure {
    let code = if let StepError::Refused { code, .. } = error { *code } else { exit::RUN_FAILED };
    let failure = Failure::new(error.to_string()).because(error).exiting(code);
    match error {
        StepError::Unreachable { .. } => failure
            .hint("check that the port is open between the nodes; `hostler job` shows whether the job's task there still runs"),
        _ => failure,
    }
}
