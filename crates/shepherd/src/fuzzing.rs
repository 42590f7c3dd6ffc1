//! Access to private functions for the fuzz targets. Not part of the product.

use crate::journal::JournalContent;
use crate::launch::Launch;
use crate::wire::{self, Event, Request, take_frame};

/// Decodes bytes like a shepherd and like its client, and returns the number of decoded frames.
pub fn frames(bytes: &[u8]) -> usize {
    let mut inbox = bytes.to_vec();
    let mut understood = 0;
    while let Ok(Some((kind, body))) = take_frame(&mut inbox) {
        assert!(body.len() < wire::FRAME_LIMIT, "every frame is shorter than the limit");
        understood += usize::from(Event::decode(kind, &body).is_ok());
        match Request::decode(kind, body) {
            Ok(Request::Launch(frame)) => {
                if let Ok(view) = frame.view() {
                    assert!(!view.argv.is_empty(), "a launch has a program");
                    understood += 1;
                }
            }
            Ok(_) => understood += 1,
            Err(_) => {}
        }
    }
    understood
}

/// One valid frame of each kind, for both directions.
pub fn valid_frames(launch: &Launch) -> Vec<Vec<u8>> {
    let terminate = wire::Terminate { cause: crate::Cause::Cancelled, grace: std::time::Duration::from_secs(10) };
    let size = crate::WindowSize { rows: 24, columns: 80 };
    let limit = crate::ResourceLimit { resource: libc::RLIMIT_NOFILE as i32, soft: 1024, hard: u64::MAX };
    let mut call = launch.clone();
    call.options.call = Some(crate::CallOptions { terminal: true, limits: vec![limit], namespace: false });
    vec![
        wire::launch_frame(launch).expect("a valid launch is below the size limit"),
        wire::launch_frame(&call).expect("a valid call is below the size limit"),
        wire::status_frame(),
        wire::terminate_frame(&terminate),
        wire::attach_frame(size),
        wire::resize_frame(size),
        wire::terminal_input_frame(b"ls\n"),
        wire::signal_frame(libc::SIGINT),
        wire::signal_run_frame(&crate::RunSignal { signal: libc::SIGUSR1, to: crate::Members::Steps }),
        wire::stopped_frame(libc::SIGTSTP),
        wire::started_frame(&crate::Started { shepherd: 7, child: Some(8) }),
        wire::refused_frame("no"),
        wire::attached_frame(),
    ]
}

/// Parses bytes as a journal. The complete lines must give the same result when parsed alone.
pub fn journal(bytes: &[u8]) {
    let story = JournalContent::parse(bytes);
    let length = story.length();
    assert!(length <= bytes.len(), "the parsed length is at most the length of the input");
    let again = JournalContent::parse(&bytes[..length]);
    assert!(!again.is_torn, "what was understood is whole");
    assert_eq!(story.ended.is_some(), again.ended.is_some());
    assert_eq!((story.is_void, &story.taken), (again.is_void, &again.taken));
}
