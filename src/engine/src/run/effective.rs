//! The request as this host can carry it out. Each feature that the host refuses makes a new value.

use avfs_request::{BackendChoice, BaseChoice, Degradation, ProcMode, ScratchChoice};

use super::admit::Admitted;
use super::record::Run;
use super::result::{Note, Notes};
use crate::launcher::Refused;
use crate::result_cache::Lookup;
use crate::scratch_size::Scratch;
use crate::view::ShownAs;

/// An admitted run, with the fallbacks for what the host refused so far.
#[derive(Clone)]
pub(crate) struct Effective<'a> {
    pub admitted: &'a Admitted,
    pub lookup: &'a Lookup,
    /// Its request is the granted one without the features that were given up.
    pub run: Run,
    pub shown_as: ShownAs,
    /// The requested features that were given up.
    pub degraded: Vec<String>,
    /// The notes before the attempt.
    pub notes: Notes,
}

impl<'a> Effective<'a> {
    /// The granted request itself.
    pub fn new(admitted: &'a Admitted, lookup: &'a Lookup) -> Self {
        Self {
            admitted,
            lookup,
            run: admitted.run.clone(),
            shown_as: ShownAs::Overlay,
            degraded: Vec::new(),
            notes: admitted.notes.followed_by(&lookup.notes),
        }
    }

    pub fn noting(mut self, note: Note) -> Self {
        self.notes.push(note);
        self
    }

    /// The fallback for a refused feature, if one exists.
    pub fn without(&self, refused: Refused, scratch_place: Scratch) -> Option<Self> {
        let request = &self.run.request;
        let may_degrade = request.degradation == Degradation::Allowed;
        let with = |change: &dyn Fn(&mut Self)| {
            let mut next = self.clone();
            change(&mut next);
            Some(next)
        };
        match refused {
            Refused::Overlay | Refused::Memory if request.scratch == ScratchChoice::Auto => {
                match scratch_place {
                    Scratch::Memory { .. } => with(&|it| it.run.request.scratch = ScratchChoice::Disk),
                    Scratch::Disk => with(&|it| it.run.request.scratch = ScratchChoice::Memory),
                }
            }
            // With a touched base, the whole directory would have to be copied.
            Refused::Overlay | Refused::Memory
                if request.backend == BackendChoice::Auto && request.base != BaseChoice::Touched =>
            {
                with(&|it| {
                    it.run.request.backend = BackendChoice::Copy;
                    it.notes.add(
                        "backend.copy",
                        "this host cannot mount an overlay here: the command runs on a copy (see: avfs doctor)",
                    );
                })
            }
            // Without overlay support there is no other way; otherwise only if the request accepts less isolation.
            Refused::Shown
                if self.shown_as == ShownAs::Overlay
                    && (may_degrade || request.backend == BackendChoice::Copy) =>
            {
                with(&|it| {
                    it.shown_as = ShownAs::Bind;
                    it.degraded.push("ro".to_owned());
                    it.notes.add(
                        "view.ro_bound",
                        "a directory of --ro cannot be a layer of an overlay: the directories of --ro are bind mounted, \
                         and sockets in them can be used",
                    );
                })
            }
            Refused::Proc if may_degrade && request.proc == ProcMode::Private => with(&|it| {
                it.run.request.proc = ProcMode::Absent;
                it.degraded.push("proc".to_owned());
            }),
            // The request cannot give up a limit set by the policy.
            Refused::Limit(kind) if may_degrade && self.run.decision.limits_max.get(kind).is_none() => {
                with(&|it| {
                    it.run.request.limits = request.limits.with(kind, None);
                    it.degraded.push(format!("limit.{kind}"));
                })
            }
            Refused::Overlay
            | Refused::Memory
            | Refused::Proc
            | Refused::Shown
            | Refused::Limit(_)
            | Refused::Other => None,
        }
    }
}
