//! Results that hostile commands could produce, for the tests of the reports.

use proptest::prelude::*;

use avfs_wire::{BatchCounts, BatchItemResult, ItemState};

pub fn plain(state: ItemState) -> BatchItemResult {
    BatchItemResult {
        item: 1,
        id: "1".to_owned(),
        command: "make test".to_owned(),
        state,
        cached: false,
        exit_code: None,
        signal: None,
        timed_out: false,
        attempts: 1,
        run_id: None,
        fork: None,
        version: None,
        duration_ms: 1234.5,
        stdout: None,
        stderr: None,
        approval_id: None,
        reason: None,
        code: None,
        hint: None,
        allow_rule: None,
        notes: Vec::new(),
    }
}

/// Text with sequences that could end an element, a cell or a line early.
fn text() -> impl Strategy<Value = String> {
    let sharp = prop::sample::select(vec![
        "]]>",
        "<![CDATA[",
        "</testcase>",
        "</pre>",
        "<b>",
        "&lt;",
        "&#0;",
        "\"",
        "'",
        "|",
        "\\|",
        "\\",
        "`",
        "``",
        "\0",
        "\u{1b}[31m",
        "\u{b}",
        "\u{7f}",
        "\u{85}",
        "\u{fffe}",
        "\u{ffff}",
        "\r\n",
        "\n",
        "\n\n",
        "\t",
        "\u{2028}",
        "\u{202e}",
        "![x](http://x)",
        "| a | b |",
        "\n|---|",
    ]);
    let piece = prop_oneof![3 => sharp.prop_map(str::to_owned), 1 => ".{0,8}".prop_map(|it| it), 1 => any::<char>().prop_map(String::from)];
    prop::collection::vec(piece, 0..6).prop_map(|pieces| pieces.concat())
}

fn result() -> impl Strategy<Value = BatchItemResult> {
    let state = prop::sample::select(vec![
        ItemState::Succeeded,
        ItemState::Failed,
        ItemState::Denied,
        ItemState::Error,
        ItemState::LeftOut,
        ItemState::NotRun,
    ]);
    let texts =
        (text(), text(), prop::option::of(text()), prop::option::of(text()), prop::option::of(text()));
    (state, texts, prop::option::of(any::<i32>()), any::<bool>(), 0.0..1e9_f64).prop_map(
        |(state, (id, command, stdout, stderr, reason), exit_code, timed_out, duration_ms)| BatchItemResult {
            id,
            command,
            exit_code,
            timed_out,
            duration_ms,
            stdout,
            stderr,
            code: reason.clone(),
            reason,
            ..plain(state)
        },
    )
}

/// At most as many results as a summary lists.
pub fn results() -> impl Strategy<Value = Vec<BatchItemResult>> {
    prop::collection::vec(result(), 0..20)
}

pub fn counted(results: &[BatchItemResult]) -> BatchCounts {
    let mut counts = BatchCounts::default();
    results.iter().for_each(|result| counts.add(result));
    counts
}
