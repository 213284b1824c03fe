//! Approvals: bound to one request, answered once, used once, with every step in the audit log.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use avfs_types::clock::{Clock, Timestamp};
use avfs_types::diagnose::Diagnose;
use avfs_types::ids::{ApprovalId, ApprovalPrefix, RequestDigest, RunPrefix};
use avfs_vault::approval::{Answer, Claim, Fault, Question};
use avfs_vault::backend::memory::MemoryBackend;
use avfs_vault::backend::sqlite::OpenOptions;
use avfs_vault::backend::{ApprovalRecord, ApprovalState, RunRecord, RunState};
use avfs_vault::run::AuditTexts;
use avfs_vault::{Context, Vault, audit};

use crate::runs::{record, run_id};
use crate::support;
use crate::support::pause::Pauses;
use crate::support::{Scratch, main_fork};
use crate::worker::Worker;

const DAY: i64 = 86_400;

/// A clock that the tests set.
struct Hand(AtomicI64);

impl Clock for Hand {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::Relaxed))
    }
}

fn digest(n: u8) -> RequestDigest {
    RequestDigest([n; 32])
}

fn question(n: u8, of: RequestDigest) -> Question {
    let id = ApprovalId::from_random([n, 1, 2, 3, 4]);
    Question { id, digest: of, reason: "it asks for the network".to_owned(), expires_seconds: DAY }
}

fn asking(n: u8) -> RunRecord {
    RunRecord { state: RunState::ApprovalRequired, exit_code: None, ..record(n, &main_fork()) }
}

const TEXTS: AuditTexts<'static> =
    AuditTexts { request: "curl x", decision: "require_approval", violation: None, cached_from: None };

fn ask(vault: &Vault, n: u8, of: RequestDigest) -> ApprovalRecord {
    vault.ask_approval(&question(n, of), &asking(n), TEXTS).unwrap()
}

fn prefix(approval: &ApprovalRecord) -> ApprovalPrefix {
    ApprovalPrefix::from(&approval.id)
}

fn actions(vault: &Vault) -> Vec<String> {
    let rows = vault.read().unwrap().audit_after(0, 1000).unwrap();
    rows.into_iter().map(|row| row.action).filter(|action| action.starts_with("approval.")).collect()
}

/// Runs the test on both stores.
fn on_both(test: impl Fn(&Vault, &Hand)) {
    let scratch = Scratch::new();
    for file in [Some(scratch.join("vault.db")), None] {
        let clock = Arc::new(Hand(AtomicI64::new(support::START.0)));
        let context = Context { clock: clock.clone(), actor: "tester".to_owned() };
        let vault = match &file {
            Some(file) => {
                drop(support::create_vault(file));
                Vault::open(file, OpenOptions::default(), context).unwrap()
            }
            None => Vault::over(Box::new(MemoryBackend::default()), context).unwrap(),
        };
        test(&vault, &clock);
        assert_eq!(audit::verify(&*vault.read().unwrap(), None).unwrap().problems, []);
    }
}

#[test]
fn approval_allows_one_run_of_exactly_this_request() {
    on_both(|vault, _| {
        let asked = ask(vault, 1, digest(1));
        assert_eq!((asked.state, asked.asked_by.clone()), (ApprovalState::Pending, run_id(1)));
        assert_eq!(vault.run(&RunPrefix::from(&run_id(1))).unwrap().state, RunState::ApprovalRequired);
        assert_eq!(vault.claim_approval(&digest(1), None, &run_id(2)).unwrap(), Claim::Open);
        // Asking again while the question is open returns the same question.
        assert_eq!(ask(vault, 2, digest(1)).id, asked.id);
        assert_ne!(ask(vault, 3, digest(2)).id, asked.id);
        let approved = vault.answer_approval(&prefix(&asked), Answer::Approve).unwrap();
        assert_eq!(approved.decided_by.as_deref(), Some("tester"));
        assert_eq!(vault.claim_approval(&digest(2), None, &run_id(4)).unwrap(), Claim::Open);
        let Claim::Granted(used) = vault.claim_approval(&digest(1), None, &run_id(4)).unwrap() else {
            panic!("not granted although approved")
        };
        assert_eq!((used.state, used.used_by), (ApprovalState::Used, Some(run_id(4))));
        assert_eq!(vault.claim_approval(&digest(1), None, &run_id(5)).unwrap(), Claim::Open);
        assert_eq!(actions(vault), ["approval.ask", "approval.ask", "approval.approve", "approval.use"]);
        let listed: Vec<_> =
            vault.approvals(i64::MAX, 10).unwrap().into_iter().map(|one| one.state).collect();
        assert_eq!(listed, [ApprovalState::Pending, ApprovalState::Used]);
    });
}

#[test]
fn presented_approval_must_be_valid_for_this_request_now() {
    on_both(|vault, clock| {
        let shown = |approval: &ApprovalRecord, of| match vault
            .claim_approval(&of, Some(&prefix(approval)), &run_id(9))
            .unwrap()
        {
            Claim::Refused { fault, .. } => Some(fault),
            Claim::Granted(_) => None,
            other @ (Claim::Denied(_) | Claim::Open) => panic!("{other:?}"),
        };
        let asked = ask(vault, 1, digest(1));
        assert_eq!(shown(&asked, digest(1)), Some(Fault::Pending));
        vault.answer_approval(&prefix(&asked), Answer::Approve).unwrap();
        assert_eq!(shown(&asked, digest(2)), Some(Fault::Mismatched));
        assert_eq!(shown(&asked, digest(1)), None);
        assert_eq!(shown(&asked, digest(1)), Some(Fault::Used));
        let forged = ApprovalRecord { id: ApprovalId::from_random([9; 5]), ..asked.clone() };
        assert_eq!(shown(&forged, digest(1)), Some(Fault::Unknown));
        let denied = ask(vault, 2, digest(1));
        vault.answer_approval(&prefix(&denied), Answer::Deny).unwrap();
        assert_eq!(shown(&denied, digest(1)), Some(Fault::Denied));
        let late = ask(vault, 3, digest(3));
        vault.answer_approval(&prefix(&late), Answer::Approve).unwrap();
        clock.0.fetch_add((DAY + 1) * 1_000_000_000, Ordering::Relaxed);
        assert_eq!(shown(&late, digest(3)), Some(Fault::Expired));
        assert_eq!(vault.claim_approval(&digest(3), None, &run_id(9)).unwrap(), Claim::Open);
        // Each refusal is in the audit log.
        assert_eq!(actions(vault).iter().filter(|action| *action == "approval.refuse").count(), 6);
        // An expired question is asked again, and cannot be answered.
        let again = ask(vault, 4, digest(3));
        assert_ne!(again.id, late.id);
        clock.0.fetch_add((DAY + 1) * 1_000_000_000, Ordering::Relaxed);
        let error = vault.answer_approval(&prefix(&again), Answer::Approve).unwrap_err();
        assert_eq!(error.code(), "approval.expired");
    });
}

#[test]
fn answers_can_be_changed_until_they_are_used_and_the_newest_counts() {
    on_both(|vault, clock| {
        let asked = ask(vault, 1, digest(1));
        vault.answer_approval(&prefix(&asked), Answer::Deny).unwrap();
        let Claim::Denied(denied) = vault.claim_approval(&digest(1), None, &run_id(2)).unwrap() else {
            panic!("not denied")
        };
        assert_eq!(denied.id, asked.id);
        let error = vault.answer_approval(&prefix(&asked), Answer::Deny).unwrap_err();
        assert_eq!(error.code(), "approval.settled");
        let other = ask(vault, 2, digest(2));
        for answer in [Answer::Approve, Answer::Deny] {
            vault.answer_approval(&prefix(&other), answer).unwrap();
        }
        assert!(matches!(vault.claim_approval(&digest(2), None, &run_id(3)).unwrap(), Claim::Denied(_)));
        // An unused denial can be changed to an approval too.
        vault.answer_approval(&prefix(&other), Answer::Approve).unwrap();
        assert!(matches!(vault.claim_approval(&digest(2), None, &run_id(4)).unwrap(), Claim::Granted(_)));
        for answer in [Answer::Approve, Answer::Deny] {
            let error = vault.answer_approval(&prefix(&other), answer).unwrap_err();
            assert_eq!(error.code(), "approval.settled");
        }
        // The newest answer counts, even if its question was asked later.
        let early = ask(vault, 3, digest(4));
        vault.answer_approval(&prefix(&early), Answer::Approve).unwrap();
        clock.0.fetch_add(1_000_000_000, Ordering::Relaxed);
        let late = ask(vault, 4, digest(4));
        vault.answer_approval(&prefix(&late), Answer::Deny).unwrap();
        let claim = vault.claim_approval(&digest(4), None, &run_id(5)).unwrap();
        assert!(matches!(&claim, Claim::Denied(denied) if denied.id == late.id), "{claim:?}");
        let none = ApprovalPrefix::parse("ffff").unwrap();
        assert_eq!(vault.answer_approval(&none, Answer::Deny).unwrap_err().code(), "approval.not_found");
    });
}

#[test]
fn two_runs_cannot_use_one_approval() {
    let scratch = Scratch::new();
    let file = scratch.join("vault.db");
    let vault = support::create_vault(&file);
    // The runs that claim it use the real clock.
    let long = Question { expires_seconds: 10_000 * DAY, ..question(1, digest(1)) };
    let asked = vault.ask_approval(&long, &asking(1), TEXTS).unwrap();
    vault.answer_approval(&prefix(&asked), Answer::Approve).unwrap();
    // One run is about to claim it when another run does.
    let pauses = Pauses::new(scratch.path());
    pauses.hold("write");
    let mut worker = Worker::paused(&pauses, "claim", &[("VAULT", file.to_str().unwrap())]);
    pauses.wait("write", &mut worker.child);
    assert!(claims(&support::open_vault(&file), 3));
    pauses.release("write");
    assert_eq!(worker.finish().acks(), ["false"]);
}

/// Whether a run is granted the approval of [`two_runs_cannot_use_one_approval`].
pub fn claims(vault: &Vault, n: u8) -> bool {
    matches!(vault.claim_approval(&digest(1), None, &run_id(n)).unwrap(), Claim::Granted(_))
}

#[test]
fn approvals_change_state_only_as_the_table_allows() {
    use ApprovalState::{Approved, Denied, Pending, Used};
    let allowed =
        [(Pending, Approved), (Pending, Denied), (Approved, Denied), (Approved, Used), (Denied, Approved)];
    for from in ApprovalState::ALL {
        for to in ApprovalState::ALL {
            assert_eq!(from.may_become(to), allowed.contains(&(from, to)), "{from:?} to {to:?}");
        }
    }
}

#[test]
fn audit_verify_finds_edited_journal_rows() {
    let scratch = Scratch::new();
    let file = scratch.join("vault.db");
    let vault = support::create_vault(&file);
    for n in [1, 2, 3] {
        vault
            .journal_refused(&RunRecord { state: RunState::Denied, ..record(n, &main_fork()) }, TEXTS)
            .unwrap();
    }
    drop(vault);
    let sql = support::sql(&file);
    sql.execute("UPDATE run SET request = '{}' WHERE seq = 1", []).unwrap();
    sql.execute("UPDATE run SET decision = '{\"action\":\"deny\"}' WHERE seq = 2", []).unwrap();
    sql.execute("DELETE FROM run WHERE seq = 3", []).unwrap();
    drop(sql);
    let vault = support::open_vault(&file);
    let found = audit::verify(&*vault.read().unwrap(), None).unwrap().problems;
    assert_eq!(
        found,
        [
            audit::Problem::RunEdited { run: run_id(1), what: "request" },
            audit::Problem::RunEdited { run: run_id(2), what: "decision" },
            audit::Problem::RunMissing { run: run_id(3) },
        ]
    );
}

#[test]
fn audit_verify_finds_forged_approvals() {
    let scratch = Scratch::new();
    let file = scratch.join("vault.db");
    let vault = support::create_vault(&file);
    let (first, second, third) =
        (ask(&vault, 1, digest(1)), ask(&vault, 2, digest(2)), ask(&vault, 3, digest(3)));
    vault.answer_approval(&prefix(&third), Answer::Approve).unwrap();
    drop(vault);
    let sql = support::sql(&file);
    sql.execute(
        "UPDATE approval SET state = 'approved', decided_at = created_at, decided_by = 'x', expires_at = 9223372036854775807 WHERE id = ?1",
        [first.id.as_str()],
    )
    .unwrap();
    sql.execute("DELETE FROM approval WHERE id = ?1", [second.id.as_str()]).unwrap();
    sql.execute("UPDATE approval SET request_digest = ?1 WHERE id = ?2", ([9; 32], third.id.as_str()))
        .unwrap();
    drop(sql);
    let vault = support::open_vault(&file);
    let mut found = audit::verify(&*vault.read().unwrap(), None).unwrap().problems;
    found.sort_by_key(ToString::to_string);
    let edited =
        |approval: &ApprovalRecord| audit::Problem::ApprovalEdited { approval: approval.id.to_string() };
    let missing = audit::Problem::ApprovalMissing { approval: second.id.to_string() };
    assert_eq!(found, [edited(&first), missing, edited(&third)]);
    // After its use it matches the log again, except that no log row approves it.
    assert!(matches!(vault.claim_approval(&digest(1), None, &run_id(4)).unwrap(), Claim::Granted(_)));
    let found = audit::verify(&*vault.read().unwrap(), None).unwrap().problems;
    assert!(found.contains(&audit::Problem::ApprovalUnsaid { approval: first.id.to_string() }), "{found:?}");
}
