//! A request in JSON: any bytes are parsed completely and deterministically, and errors name their position.

#![no_main]

use libfuzzer_sys::fuzz_target;

use avfs_request::spec::{RunSpec, SpecError};

fuzz_target!(|bytes: &[u8]| {
    let (one, two) = (RunSpec::parse(bytes), RunSpec::parse(bytes));
    assert_eq!(format!("{one:?}"), format!("{two:?}"));
    match one {
        Ok(file) => {
            if let Ok(command) = file.command_line() {
                // A command of any bytes can be displayed.
                let _ = command.shown();
                assert_eq!(file.command_line().as_ref(), Ok(&command));
            }
        }
        Err(SpecError::Json { line, .. }) => {
            let lines = bytes.split(|byte| *byte == b'\n').count();
            assert!(line <= lines, "line {line} of {lines}");
        }
        Err(SpecError::TooLong | SpecError::Key { .. }) => {}
    }
});
