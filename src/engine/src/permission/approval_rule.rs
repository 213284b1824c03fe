//! "Always": an approval becomes a rule in the user's own policy file, for all later commands with the same
//! first words.
//!
//! A rule is written only if it changes the decision: it cannot override a layer with higher precedence.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use avfs_hostfs::new_file::NewFile;
use avfs_hostfs::place::{NewOwner, Place, PlaceError};
use avfs_hostfs::random;
use avfs_policy::{
    Action, Asked, Categories, Category, Explanation, Judged, NoRule, Opening, OwnChoices, PolicyError,
    Widening, Word, always, quoted,
};
use avfs_request::request::NamedVault;
use avfs_request::spec::{RunSpec, SpecError};
use avfs_request::{
    Confinement, Degradation, ExecutionTimeout, HomeMode, NestedUserns, NetMode, Profile, Terminal, TmpMode,
};
use avfs_types::diagnose::Diagnose;
use avfs_types::ids::ApprovalId;
use avfs_vault::backend::ApprovalRecord;

use crate::discover::file_text::{FileText, FileUse, UnreadableFile};
use crate::locate::Surroundings;
use crate::policy_files::{POLICY_FILE, PolicyTexts};

/// The rules to write for an approval.
pub struct Remembered {
    pub file: PathBuf,
    /// The first words of commands that will be allowed.
    pub prefixes: Vec<Vec<String>>,
    /// The text of the file when the rules were computed, and the new text.
    old: Option<String>,
    text: String,
}

/// The first words of a command, and the category it needs approval for.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Begun {
    words: Vec<String>,
    categories: Categories,
}

#[derive(Debug, thiserror::Error)]
pub enum RememberError {
    #[error("cannot derive a rule for approval {id} from its first words: {why}")]
    NoPrefix { id: ApprovalId, why: String },
    #[error("cannot derive a rule for approval {id} from its first words: {why}")]
    NoRule { id: ApprovalId, why: NoRule },
    #[error("no command of approval {id} begins with {prefix:?}")]
    OtherPrefix { id: ApprovalId, prefix: String },
    #[error("a rule in your policy would not allow it: {reason}")]
    StillAsked {
        id: ApprovalId,
        reason: String,
        /// An alternative to a rule, such as `drop --ro /srv`.
        instead: Option<String>,
    },
    #[error("{} changed since the rule was computed", path.display())]
    Changed { path: PathBuf },
    #[error(
        "cannot determine the path of your policy: neither XDG_CONFIG_HOME nor HOME is set, and the user database has no home for this user"
    )]
    NoHome,
    #[error("the request of approval {id} cannot be read")]
    BadRequest {
        id: ApprovalId,
        #[source]
        source: SpecError,
    },
    #[error(transparent)]
    Unreadable(#[from] UnreadableFile),
    #[error(transparent)]
    Policy(#[from] PolicyError),
    #[error("{} is not written: {} is a symbolic link", path.display(), link.display())]
    Linked {
        path: PathBuf,
        link: PathBuf,
        /// The path of the file without symlinks.
        real: PathBuf,
    },
    #[error("cannot write {}", path.display())]
    Write {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
}

impl Diagnose for RememberError {
    fn code(&self) -> &'static str {
        match self {
            Self::NoPrefix { .. } | Self::NoRule { .. } => "approval.no_prefix",
            Self::OtherPrefix { .. } => "approval.other_prefix",
            Self::StillAsked { .. } => "approval.still_asked",
            Self::Changed { .. } => "policy.changed",
            Self::NoHome => "env.no_home",
            Self::BadRequest { .. } => "approval.bad_request",
            Self::Unreadable(error) => error.code(),
            Self::Policy(error) => error.code(),
            Self::Linked { .. } => "policy.symlink",
            Self::Write { .. } => "policy.io",
        }
    }
}

/// The context of the approval.
pub struct RememberFor<'a> {
    pub around: &'a Surroundings,
    pub vault: Option<&'a Path>,
    pub workspace: &'a Path,
}

impl Remembered {
    /// Computes the rules without writing them. `prefix` is the prefix given by the user, `granted` the network
    /// they chose.
    pub fn plan(
        approval: &ApprovalRecord,
        prefix: Option<&str>,
        granted: Option<&NetMode>,
        place: &RememberFor<'_>,
    ) -> Result<Self, RememberError> {
        let id = &approval.id;
        let bad = |source| RememberError::BadRequest { id: id.clone(), source };
        let request = RunSpec::parse(approval.request.as_bytes()).map_err(bad)?;
        let command = request.command_line().map_err(bad)?;
        let workspace = request.at.as_deref().unwrap_or(place.workspace);
        let cwd = workspace.join(request.cwd.as_deref().unwrap_or(Path::new("")));
        let real = |path: &PathBuf| {
            let linked = path.to_str().and_then(|path| request.links.get(path));
            linked.unwrap_or(path).clone()
        };
        let rw: Vec<PathBuf> = request.rw.iter().map(real).collect();
        let rw: Vec<&Path> = rw.iter().map(PathBuf::as_path).collect();
        let files = request.secret_files.iter().flat_map(|file| match file.split_once('=') {
            Some((name, path)) => vec![name, path],
            None => vec![file.as_str()],
        });
        // Among the caches is the home that the fork keeps.
        let caches = request.cache_dirs.iter().map(Path::new);
        let provided: Vec<&Path> = request.tmpfs.iter().map(PathBuf::as_path).chain(caches).collect();
        let secrets: Vec<&str> = request.secrets.iter().map(String::as_str).chain(files).collect();
        let net = request.net.clone().unwrap_or(NetMode::None);
        let variables: Vec<(&str, &str)> = request
            .env
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .filter(|(name, value)| !request.preset.iter().any(|preset| preset.sets(name, value)))
            .collect();
        let asked = Asked {
            command: &command,
            fork: request.fork.as_ref(),
            cwd: &cwd,
            workspace,
            project: place.workspace,
            home: place.around.home.as_deref(),
            net: &net,
            confinement: confinement(&request),
            profile: request.profile.unwrap_or(Profile::Strict),
            timeout: ExecutionTimeout::None,
            rw: &rw,
            provided: &provided,
            secrets: &secrets,
            variables: &variables,
            openings: &openings(&request, workspace, place.workspace),
            terminal: Terminal::None,
            editor: false,
            // A doubt cannot become a rule.
            own: OwnChoices::NONE,
        };
        let texts = PolicyTexts::read(place.around, place.vault)?;
        let file = place.around.user_config().ok_or(RememberError::NoHome)?.with_file_name(POLICY_FILE);
        let old = texts.files().find(|(_, text)| text.path == file).and_then(|(_, text)| text.text.clone());
        // The user may answer again, with another network or prefix.
        let kept = without_rules(old.as_deref().unwrap_or_default(), id);
        let before = match old.is_some() {
            true => texts.clone().with_text(&file, &kept),
            false => texts.clone(),
        };
        let before = before.policy()?.with_profiles(&request.policy);
        let begun = prefixes(id, &before.explain(&asked), prefix)?;
        let own = request.env.get("PATH").map(OsString::from);
        let search = own.or_else(|| place.around.search_path.clone()).unwrap_or_default();
        let writable = [&[workspace, place.workspace], &rw[..]].concat();
        let programs = begun.iter().filter_map(|begun| begun.words.first());
        if let Some(why) = programs.filter_map(|it| replaceable(it, &search, &cwd, &writable)).next() {
            return Err(RememberError::NoRule { id: id.clone(), why });
        }
        let text = with_rules(&kept, &begun, granted.unwrap_or(&net), id, place.workspace);
        let after = texts.clone().with_text(&file, &text).policy()?.with_profiles(&request.policy);
        let after = after.decide(&asked);
        if after.action >= Action::RequireApproval {
            return Err(RememberError::StillAsked {
                id: id.clone(),
                reason: after.reason,
                instead: after.hint,
            });
        }
        let prefixes = begun.into_iter().map(|begun| begun.words).collect();
        Ok(Self { file, prefixes, old, text })
    }

    /// Replaces the file atomically.
    pub fn write(&self) -> Result<(), RememberError> {
        self.prepare()?.put()
    }

    /// Writes the new text beside the file, so that every obstacle is found before the answer. Fails if the file
    /// changed since the rules were computed, because the user may take hours to answer.
    pub fn prepare(&self) -> Result<NewRules, RememberError> {
        let path = self.file.clone();
        if FileText::read(FileUse::Policy, path.clone())?.text != self.old {
            return Err(RememberError::Changed { path });
        }
        let failed = |source| RememberError::Write { path: path.clone(), source };
        let place = Place::of_file_in_new_dirs(&path, NewOwner::Caller).map_err(|error| match error {
            PlaceError::Link { link, real } => RememberError::Linked { path: path.clone(), link, real },
            PlaceError::Io { source, .. } => failed(source),
        })?;
        let write = || {
            let mode = place.there.map_or(0o600, |there| there.mode);
            let beside = format!("{POLICY_FILE}.{}", random::suffix()?);
            let new = NewFile::create(place.dir.as_fd(), beside.as_bytes(), mode & 0o777)?;
            new.file().write_all(self.text.as_bytes())?;
            new.file().sync_all()?;
            Ok(new)
        };
        let new = write().map_err(failed)?;
        Ok(NewRules { new, name: place.name, path })
    }
}

/// A policy file with new rules that is complete but does not have its name yet. Dropping it removes it.
pub struct NewRules {
    new: NewFile,
    name: OsString,
    path: PathBuf,
}

impl NewRules {
    /// Replaces the file.
    pub fn put(self) -> Result<(), RememberError> {
        let Self { new, name, path } = self;
        new.place(name.as_bytes()).map_err(|source| RememberError::Write { path, source })
    }
}

/// The requested confinement.
fn confinement(request: &RunSpec) -> Confinement {
    let Confinement { seccomp, landlock, .. } = Confinement::DEFAULT;
    Confinement {
        seccomp: request.seccomp.unwrap_or(seccomp),
        landlock: request.landlock.unwrap_or(landlock),
        userns: if request.allow_userns { NestedUserns::Allowed } else { NestedUserns::Refused },
    }
}

/// The first words of every command that needs approval.
fn prefixes(
    id: &ApprovalId,
    explanation: &Explanation,
    spelled: Option<&str>,
) -> Result<Vec<Begun>, RememberError> {
    let no = |why: &str| RememberError::NoPrefix { id: id.clone(), why: why.to_owned() };
    let no_rule = |why| RememberError::NoRule { id: id.clone(), why };
    if let Some(doubt) = explanation.doubts.first() {
        return Err(no(doubt));
    }
    let asked = explanation.commands.iter().filter(|one| one.verdict.action == Action::RequireApproval);
    let asked: Vec<&Judged> = asked.map(|one| &one.command).collect();
    // A rule applies to commands: other parts of the request would need approval again.
    let given = explanation.handed_over.iter().find(|verdict| verdict.action >= Action::RequireApproval);
    if let (true, Some(verdict)) = (asked.is_empty(), given) {
        let (reason, instead) = (verdict.reason.clone(), verdict.hint.clone());
        return Err(RememberError::StillAsked { id: id.clone(), reason, instead });
    }
    if asked.is_empty() {
        return Err(no("the approval is not for a command but covers other parts of the request"));
    }
    if let Some(spelled) = spelled {
        let words: Vec<String> = spelled.split_whitespace().map(str::to_owned).collect();
        let meant = asked.iter().find(|command| !words.is_empty() && begins_with(command, &words));
        let other = || RememberError::OtherPrefix { id: id.clone(), prefix: spelled.to_owned() };
        let meant = meant.ok_or_else(other)?;
        let words = always(&meant.words, Some(words.len())).map_err(no_rule)?;
        return Ok(vec![Begun { words, categories: asked_about(meant) }]);
    }
    let mut all: Vec<Begun> = Vec::new();
    for command in asked {
        let words = always(&command.words, None).map_err(no_rule)?;
        let begun = Begun { words, categories: asked_about(command) };
        if !all.contains(&begun) {
            all.push(begun);
        }
    }
    Ok(all)
}

/// Why no rule can stand for a program: a command could replace the file that PATH finds.
fn replaceable(program: &str, search: &OsStr, cwd: &Path, writable: &[&Path]) -> Option<NoRule> {
    let found = |dir: PathBuf| {
        let path = cwd.join(dir).join(program);
        let meta = path.metadata().ok()?;
        (meta.is_file() && meta.mode() & 0o111 != 0).then_some(path)
    };
    let path = std::env::split_paths(search).find_map(found)?;
    let is_writable = |path: &Path| writable.iter().any(|top| path.starts_with(top));
    // A directory of the system can have a symlink to a program of the workspace.
    let path = [path.canonicalize().ok()?, path].into_iter().find(|path| is_writable(path))?;
    Some(NoRule::Replaceable { program: program.to_owned(), path: path.display().to_string() })
}

/// The category that needs approval: an approval of network access does not extend to other effects of such a
/// command.
fn asked_about(command: &Judged) -> Categories {
    [Category::Networked].into_iter().filter(|category| command.categories.contains(*category)).collect()
}

fn begins_with(command: &Judged, words: &[String]) -> bool {
    let known: Vec<Option<&str>> = command.words.iter().map(Word::known).collect();
    words.len() <= known.len() && words.iter().zip(known).all(|(word, known)| known == Some(word))
}

/// The text of the file without the rules of an earlier answer to the same approval. Such a rule ends at an empty line
/// or at the next table.
fn without_rules(text: &str, id: &ApprovalId) -> String {
    let name = format!("name = \"approved-{id}");
    let is_named = |line: &str| line.strip_prefix(&name).is_some_and(|rest| rest.starts_with(['"', '-']));
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let (mut kept, mut at) = (String::new(), 0);
    while let Some(line) = lines.get(at) {
        let begins = line.trim_end() == "[[rule]]" && lines.get(at + 1).is_some_and(|next| is_named(next));
        if !begins {
            kept.push_str(line);
            at += 1;
            continue;
        }
        let rest = &lines[at + 1..];
        let length = rest.iter().position(|line| line.trim().is_empty() || line.starts_with('['));
        at += 1 + length.unwrap_or(rest.len());
        // The empty line after it, too.
        at += usize::from(lines.get(at).is_some_and(|line| line.trim().is_empty()));
    }
    kept
}

/// The text of the file with the rules appended.
fn with_rules(old: &str, begun: &[Begun], net: &NetMode, id: &ApprovalId, workspace: &Path) -> String {
    let mut text = old.to_owned();
    for (number, Begun { words, categories }) in begun.iter().enumerate() {
        if !text.is_empty() && !text.ends_with("\n\n") {
            text.push_str(if text.ends_with('\n') { "\n" } else { "\n\n" });
        }
        let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
        let category = categories.iter().map(|category| format!("category = {}\n", quoted(category.word())));
        let name =
            if number == 0 { format!("approved-{id}") } else { format!("approved-{id}-{}", number + 1) };
        text.push_str(&format!(
            "[[rule]]\nname = {}\nprefix = [{}]\n{}net = {}\nworkspace = {}\naction = \"{}\"\nreason = {}\n",
            quoted(&name),
            words.join(", "),
            category.collect::<String>(),
            quoted(&net.to_string()),
            quoted(&glob_escaped(&workspace.to_string_lossy())),
            Action::AllowWithCheckpoint,
            quoted(&format!("allowed permanently with approval {id}")),
        ));
    }
    text
}

/// The openings that the stored request asks for.
fn openings(request: &RunSpec, workspace: &Path, project: &Path) -> Vec<Opening> {
    let tmpfs = request.tmpfs.iter().map(|path| ("--tmpfs", path.as_path()));
    let hide = request.hide.iter().map(|path| ("--hide", path.as_path()));
    let covers: Vec<(&'static str, &Path)> = tmpfs.chain(hide).collect();
    let vault = request.vault.as_ref().filter(|_| request.vault_named);
    let widening = Widening {
        // Approvals are only valid in a trusted vault.
        vault: vault.map(|path| NamedVault { path: path.clone(), is_trusted: true }),
        ro: &request.ro_named,
        env_files: &request.env_files,
        inputs: &request.input,
        retention: request.kept(),
        at: request.at.as_deref(),
        degradation: if request.allow_degraded { Degradation::Allowed } else { Degradation::Refused },
        home: request.home.unwrap_or(HomeMode::Private),
        tmp: if request.keep_tmp { TmpMode::Kept } else { TmpMode::Private },
        covers: &covers,
        presets: &request.preset,
        workspace,
        project,
    };
    widening.openings()
}

/// Escapes a path for use in a glob.
fn glob_escaped(path: &str) -> String {
    globset::escape(path)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn concurrent_changes_of_the_file_are_not_lost() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("avfs").join(POLICY_FILE);
        let remembered = |old: Option<&str>, text: &str| Remembered {
            file: file.clone(),
            prefixes: Vec::new(),
            old: old.map(str::to_owned),
            text: text.to_owned(),
        };
        remembered(None, "# 1\n").write().unwrap();
        let late = remembered(None, "# 2\n").write().unwrap_err();
        assert_eq!((late.code(), fs::read_to_string(&file).unwrap().as_str()), ("policy.changed", "# 1\n"));
        remembered(Some("# 1\n"), "# 2\n").write().unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "# 2\n");
    }

    #[test]
    fn a_second_answer_replaces_the_rules_of_the_first() {
        let id: ApprovalId = ApprovalId::parse("0a1b2c3d4e").unwrap();
        let begun = |words: &[&str]| Begun {
            words: words.iter().map(|word| (*word).to_owned()).collect(),
            categories: Categories::NONE,
        };
        let both = [begun(&["git", "pull"]), begun(&["npm", "ci"])];
        for old in ["", "# mine\n", "# mine\n\n[[rule]]\nname = \"approved-0a1b2c3d4f\"\nprefix = [\"x\"]\n"]
        {
            let first = with_rules(old, &both, &NetMode::None, &id, Path::new("/p"));
            let stripped = without_rules(&first, &id);
            assert_eq!(stripped.trim_end(), old.trim_end());
            let again = with_rules(&stripped, &both, &NetMode::Host, &id, Path::new("/p"));
            assert_eq!(again, with_rules(old, &both, &NetMode::Host, &id, Path::new("/p")));
            // Lines after the rules remain.
            let more = format!("{first}\n[caps]\nnet = 'none'\n");
            assert_eq!(without_rules(&more, &id), format!("{stripped}[caps]\nnet = 'none'\n"));
        }
    }
}
