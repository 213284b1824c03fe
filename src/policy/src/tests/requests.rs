//! Verdicts on a request that do not depend on its command: profiles, caps, timeouts.

use std::path::PathBuf;

use avfs_request::choices::PolicyProfile;
use avfs_request::request::NamedVault;
use avfs_request::{LandlockMode, NestedUserns, Preset};

use super::*;

#[test]
fn an_agent_needs_approval_for_the_network_and_for_privileges() {
    let agent = Policy::builtin().with_profile(PolicyProfile::Agent);
    let (plain, net) = (Request::plain(), Request::with_net());
    assert_eq!(plain.decided(&agent, one("ls", READ)).action, Action::Allow);
    for (request, reading) in [
        (&plain, one("curl x", NETWORK)),
        (&net, one("curl x", NETWORK)),
        // With network access, any program may use it.
        (&net, one("make", WRITE)),
    ] {
        let decision = request.decided(&agent, reading);
        assert_eq!(decision.action, Action::RequireApproval);
    }
    let decision = net.decided(&agent, one("curl x", NETWORK));
    assert_eq!(decision.rule.as_deref(), Some("profile.agent.net"));
    let open = Confinement { seccomp: SeccompProfile::Off, ..Confinement::DEFAULT };
    let given = [
        (Request { secrets: vec!["TOKEN"], ..Request::plain() }, "profile.agent.secrets"),
        (Request { rw: vec![Path::new("/srv")], ..Request::plain() }, "profile.agent.rw"),
        (Request { profile: Profile::Host, ..Request::plain() }, "profile.agent.profile"),
        (Request { confinement: open, ..Request::plain() }, "profile.agent.confinement"),
    ];
    let allowing = policy([layer(Tier::System, [rule(&["ls"], Action::Allow)])]);
    let allowing = allowing.with_profile(PolicyProfile::Agent);
    for (request, rule) in &given {
        for policy in [&agent, &allowing] {
            let decision = request.decided(policy, one("ls", READ));
            assert_eq!((decision.action, decision.rule.as_deref()), (Action::RequireApproval, Some(*rule)));
        }
    }
    // It never loosens a stricter verdict.
    assert_eq!(
        net.decided(&agent, one("sudo curl", &[Category::Networked, Category::HostEscapeRisk])).action,
        Action::Deny
    );
}

#[test]
fn a_rule_does_not_override_profiles_of_other_layers() {
    let net = Request::with_net();
    let allow = || rule(&["npm"], Action::Allow);
    let with = |tier, rules: Vec<Rule>, profile: Option<PolicyProfile>| Layer {
        profiles: profile.into_iter().collect(),
        ..layer(tier, rules)
    };
    let agent = Some(PolicyProfile::Agent);
    for (layers, expected) in [
        (vec![with(Tier::User, vec![allow()], agent)], Action::Allow),
        (vec![with(Tier::System, vec![allow()], agent)], Action::Allow),
        // A user who selects a profile wants to be stricter than the system.
        (
            vec![with(Tier::System, vec![allow()], None), with(Tier::User, vec![], agent)],
            Action::RequireApproval,
        ),
        // The user cannot override the verdict of the system.
        (
            vec![with(Tier::System, vec![], agent), with(Tier::User, vec![allow()], None)],
            Action::RequireApproval,
        ),
        // The project's additions apply, regardless of who allowed the command.
        (
            vec![with(Tier::User, vec![allow()], None), with(Tier::Vault, vec![], agent)],
            Action::RequireApproval,
        ),
    ] {
        assert_eq!(net.decided(&policy(layers), one("npm install", NETWORK)).action, expected);
    }
}

#[test]
fn ci_denies_instead_of_asking() {
    let ci = Policy::builtin().with_profile(PolicyProfile::Ci);
    let decision = Request::plain().decided(&ci, one("curl x", NETWORK));
    assert_eq!((decision.action, decision.rule.as_deref()), (Action::Deny, Some("profile.ci")));
    assert_eq!(decision.hint.as_deref(), Some("add --net allow=DOMAIN,… or --net host"));
    assert!(decision.reason.contains("builtin.networked"), "{}", decision.reason);
    for (reading, action) in
        [(one("ls", READ), Action::Allow), (one("x", WRITE), Action::AllowWithCheckpoint)]
    {
        assert_eq!(Request::plain().decided(&ci, reading).action, action);
    }
    assert_eq!(Request::with_net().decided(&ci, in_doubt([])).action, Action::Deny);
    assert_eq!(Request::plain().decided(&ci, in_doubt([])).action, Action::AllowWithCheckpoint);
    let both = ci.with_profile(PolicyProfile::Agent);
    assert_eq!(Request::with_net().decided(&both, one("curl x", NETWORK)).action, Action::Deny);
}

/// Every opening, each for a separate request.
fn openings() -> Vec<Opening> {
    let path = PathBuf::from("/srv/x");
    let vault = |is_trusted| Opening::Vault(NamedVault { path: path.clone(), is_trusted });
    vec![
        vault(true),
        vault(false),
        Opening::NewVault,
        Opening::Apply,
        Opening::Ro(path.clone()),
        Opening::EnvFile(path.clone()),
        Opening::Input(path.clone()),
        Opening::At(path.clone()),
        Opening::Degraded,
        Opening::Persist { option: "--keep-tmp" },
        Opening::Cover { option: "--tmpfs", path },
        Opening::Preset(Preset::Rust),
    ]
}

#[test]
fn an_agent_needs_approval_for_every_opening() {
    let kinds: Vec<OpeningKind> = openings().iter().map(Opening::kind).collect();
    assert!(OpeningKind::ALL.iter().all(|kind| kinds.contains(kind)), "{kinds:?}");
    for opening in openings() {
        let request = Request { openings: vec![opening.clone()], ..Request::plain() };
        assert_eq!(request.decided(&Policy::builtin(), one("ls", READ)).action, Action::Allow);
        let agent = Policy::builtin().with_profile(PolicyProfile::Agent);
        let decision = request.decided(&agent, one("ls", READ));
        let refused =
            matches!(opening, Opening::Vault(NamedVault { is_trusted: false, .. }) | Opening::NewVault);
        let action = if refused { Action::Deny } else { Action::RequireApproval };
        assert_eq!(decision.action, action, "{opening:?}");
        assert_eq!(decision.rule, Some(format!("profile.agent.{}", opening.kind())));
        assert_eq!(agent.refuses(&opening).is_some(), refused, "{opening:?}");
        assert_eq!(Policy::builtin().refuses(&opening), None);
    }
}

/// The requests that the profile `agent` asks about, with the option to drop.
#[test]
fn a_doubt_asks_only_if_the_request_itself_asks_for_more_than_the_default() {
    let open = Confinement { seccomp: SeccompProfile::Off, ..Confinement::DEFAULT };
    let none = OwnChoices::NONE;
    let plain = Request::plain;
    let net = "allow=a.org".parse::<NetMode>().unwrap();
    let mut given = vec![
        (Request { net, own: OwnChoices { net: true, ..none }, ..plain() }, "drop --net allow=a.org"),
        (Request { own: OwnChoices { variables: true, ..none }, ..plain() }, "drop --env NAME"),
        (Request { secrets: vec!["TOKEN"], ..plain() }, "drop --secret TOKEN or --env TOKEN"),
        (Request { rw: vec![Path::new("/srv")], ..plain() }, "drop --rw /srv"),
        (Request { own: OwnChoices { profile: Profile::Host, ..none }, ..plain() }, "drop --profile host"),
        (Request { own: OwnChoices { confinement: open, ..none }, ..plain() }, "drop --seccomp off"),
    ];
    let openings = openings();
    let hints: Vec<String> = openings.iter().map(Opening::hint).collect();
    for (opening, hint) in openings.iter().zip(&hints) {
        given.push((Request { openings: vec![opening.clone()], ..plain() }, hint));
    }
    for (request, drop) in &given {
        let decision = request.decided(&Policy::builtin(), in_doubt([]));
        let decided = (decision.action, decision.rule.as_deref());
        assert_eq!(decided, (Action::RequireApproval, Some("builtin.doubt")), "{drop}");
        let hint = format!("{drop}, or write the commands out literally, without shell expansions");
        assert_eq!(decision.hint, Some(hint));
        // A policy can allow it all the same.
        let doubt = Some(Placed { value: Action::Allow, place: place(1) });
        let allowing = policy([Layer { doubt, ..Layer::new(Tier::User) }]);
        assert_eq!(request.decided(&allowing, in_doubt([])).action, Action::Allow, "{drop}");
    }
    // What comes from the settings is not a reason to ask.
    for request in [
        Request { net: NetMode::Host, ..plain() },
        Request { profile: Profile::Host, ..plain() },
        Request { confinement: open, ..plain() },
        Request { variables: vec![("A", "b")], ..plain() },
        plain(),
    ] {
        let decision = request.decided(&Policy::builtin(), in_doubt([]));
        assert_eq!(decision.action, Action::AllowWithCheckpoint, "{request:?}");
    }
}

#[test]
fn caps_apply_to_openings_and_confinement() {
    let caps = "[caps]\nvault = ['/srv/ok']\nnew_vault = false\napply = false\nro = ['/srv/ok']\n\
                env_file = []\ninput = []\nat = ['/srv/ok']\ncover = []\ndegraded = false\npreset = false\npersist = false\nseccomp = 'default'\nlandlock = 'auto'\n\
                userns = 'refused'";
    let layer = |text: &str| Layer::parse_unchecked(Tier::User, Path::new("/p.toml"), text).unwrap();
    let (capped, open) = (
        policy([layer(caps)]),
        "[caps]\nnew_vault = true\napply = true\ndegraded = true\npreset = true\npersist = true",
    );
    for opening in openings() {
        let request = Request { openings: vec![opening.clone()], ..Request::plain() };
        let decision = request.decided(&capped, one("ls", READ));
        let key = format!("caps.{}", opening.kind());
        assert_eq!((decision.action, decision.rule), (Action::Deny, Some(key)), "{opening:?}");
        assert!(capped.refuses(&opening).is_some(), "{opening:?}");
        assert_eq!(policy([layer(open)]).refuses(&opening), None, "{opening:?}");
    }
    let within = Request { openings: vec![Opening::Ro("/srv/ok/below".into())], ..Request::plain() };
    assert_eq!(within.decided(&capped, one("ls", READ)).rule.as_deref(), Some("caps.ro"));
    let within = Request { openings: vec![Opening::Ro("/srv/ok".into())], ..Request::plain() };
    assert_eq!(within.decided(&capped, one("ls", READ)).action, Action::Allow);
    for (confinement, key) in [
        (Confinement { seccomp: SeccompProfile::Off, ..Confinement::DEFAULT }, "caps.seccomp"),
        (Confinement { landlock: LandlockMode::Off, ..Confinement::DEFAULT }, "caps.landlock"),
        (Confinement { userns: NestedUserns::Allowed, ..Confinement::DEFAULT }, "caps.userns"),
    ] {
        let request = Request { confinement, ..Request::plain() };
        let decision = request.decided(&capped, one("ls", READ));
        assert_eq!((decision.action, decision.rule.as_deref()), (Action::Deny, Some(key)));
        assert_eq!(request.decided(&Policy::builtin(), one("ls", READ)).action, Action::Allow);
    }
}

#[test]
fn variables_of_a_request_are_judged_like_assignments() {
    let decided = |variables| {
        let request =
            Request { command: CommandLine::Argv(vec!["ls".into()]), variables, ..Request::plain() };
        Policy::builtin().decide(&request.asked()).action
    };
    assert_eq!(decided(vec![("LANG", "C"), ("PAGER", "cat")]), Action::Allow);
    for name in ["PATH", "LD_PRELOAD", "GIT_SSH_COMMAND", "BASH_ENV"] {
        assert_eq!(decided(vec![(name, "/w/x")]), Action::AllowWithCheckpoint, "{name}");
    }
}

#[test]
fn caps_of_all_layers_apply_and_name_their_line_and_option() {
    let patterns = |texts: &[&str]| texts.iter().map(|text| Pattern::of_path(text).unwrap()).collect();
    let capped = |tier, caps| Layer { caps, ..Layer::new(tier) };
    let system = Caps {
        rw: Some(Placed { value: patterns(&["/srv/**"]), place: place(3) }),
        secrets: Some(Placed { value: patterns(&["NPM_*"]), place: place(4) }),
        ..Caps::default()
    };
    let vault = Caps {
        net: Some(Placed { value: NetMode::None, place: place(5) }),
        rw: Some(Placed { value: patterns(&["/srv/data/**"]), place: place(6) }),
        profile: Some(Placed { value: Profile::Strict, place: place(7) }),
        ..Caps::default()
    };
    let policy = policy([capped(Tier::System, system), capped(Tier::Vault, vault)]);
    let rw = |path: &'static str| Request { rw: vec![Path::new(path)], ..Request::plain() };
    let secret = |name| Request { secrets: vec![name], ..Request::plain() };
    for (request, broken) in [
        (Request::plain(), None),
        (rw("/srv/data/x"), None),
        (rw("/srv/data"), None),
        (rw("/srv/other"), Some(("caps.rw", ":6 ", "drop --rw /srv/other"))),
        (rw("/etc"), Some(("caps.rw", ":3 ", "drop --rw /etc"))),
        (rw("/srv/data/../../etc"), Some(("caps.rw", ":3 ", "drop --rw /srv/data/../../etc"))),
        (secret("NPM_TOKEN"), None),
        (secret("AWS_KEY"), Some(("caps.secrets", ":4 ", "drop --secret AWS_KEY or --env AWS_KEY"))),
        (Request::with_net(), Some(("caps.net", ":5 ", "drop --net host"))),
        (
            Request { profile: Profile::Host, ..Request::plain() },
            Some(("caps.profile", ":7 ", "drop --profile host")),
        ),
    ] {
        let decision = request.decided(&policy, one("ls", READ));
        match broken {
            None => assert_eq!(decision.action, Action::Allow, "{decision:?}"),
            Some((rule, line, hint)) => {
                assert_eq!((decision.action, decision.rule.as_deref()), (Action::Deny, Some(rule)));
                assert!(decision.reason.contains(line), "{}", decision.reason);
                assert_eq!(decision.hint.as_deref(), Some(hint));
            }
        }
    }
}

#[test]
fn an_allow_list_counts_as_a_network_and_can_be_capped_by_another() {
    let with = |net: &str| Request { net: net.parse().unwrap(), ..Request::plain() };
    // For the defaults and for an agent, it counts as network access.
    let builtin = Policy::builtin();
    assert_eq!(with("allow=a.org").decided(&builtin, one("curl x", NETWORK)).action, Action::Allow);
    let agent = Policy::builtin().with_profile(PolicyProfile::Agent);
    let drop_it = "drop --net allow=a.org if it is not needed";
    for (reading, hint) in [(one("curl x", NETWORK), None), (one("make", WRITE), Some(drop_it))] {
        let decision = with("allow=a.org").decided(&agent, reading);
        assert_eq!(
            (decision.action, decision.rule.as_deref()),
            (Action::RequireApproval, Some("profile.agent.net"))
        );
        assert_eq!(decision.hint.as_deref(), hint);
    }
    let cap = |net: &str| {
        let net = Some(Placed { value: net.parse().unwrap(), place: place(5) });
        policy([Layer { caps: Caps { net, ..Caps::default() }, ..Layer::new(Tier::Vault) }])
    };
    let list = "allow=*.a.org,10.0.0.0/8:5432";
    for (cap_net, net, hint) in [
        (list, "none", None),
        (list, "allow=x.a.org,10.1.0.0/16:5432", None),
        ("host", "allow=a.org", None),
        (list, "allow=x.a.org,a.org", Some("drop a.org from --net allow=a.org,x.a.org")),
        (list, "allow=10.1.2.3", Some("drop 10.1.2.3 from --net allow=10.1.2.3")),
        (list, "host", Some("drop --net host")),
        ("none", "allow=a.org", Some("drop --net allow=a.org")),
    ] {
        let decision = with(net).decided(&cap(cap_net), one("ls", READ));
        assert_eq!(
            decision.action,
            if hint.is_some() { Action::Deny } else { Action::Allow },
            "{cap_net} {net}"
        );
        if hint.is_some() {
            assert_eq!(
                (decision.rule.as_deref(), decision.hint.as_deref()),
                (Some("caps.net"), hint),
                "{cap_net} {net}"
            );
        }
    }
}

#[test]
fn the_shortest_times_and_any_discard_apply() {
    let timeout = |tier, millis| {
        let value = ExecutionTimeout::Millis(millis);
        let caps = Caps { timeout: Some(Placed { value, place: place(1) }), ..Caps::default() };
        Layer { caps, ..Layer::new(tier) }
    };
    let plain = Request::plain();
    let none = plain.decided(&Policy::builtin(), one("ls", READ));
    assert_eq!((none.timeout_max, none.on_violation), (ExecutionTimeout::None, OnViolation::Keep));
    assert_eq!(none.approval_seconds, ExecutionDecision::APPROVAL_SECONDS);
    let both = policy([timeout(Tier::System, 5_000), timeout(Tier::Vault, 9_000)]);
    let decision = plain.decided(&both, one("ls", READ));
    assert_eq!((decision.timeout_max, decision.action), (ExecutionTimeout::Millis(5_000), Action::Allow));
    let said = |tier, on_violation, seconds| Layer {
        on_violation: Some(on_violation),
        approval_seconds: Some(seconds),
        ..Layer::new(tier)
    };
    let day = ExecutionDecision::APPROVAL_SECONDS;
    for (layers, on_violation, seconds) in [
        (vec![said(Tier::User, OnViolation::Keep, 2 * day)], OnViolation::Keep, 2 * day),
        (vec![said(Tier::Vault, OnViolation::Discard, 2 * day)], OnViolation::Discard, day),
        (
            vec![said(Tier::User, OnViolation::Discard, 2 * day), said(Tier::Vault, OnViolation::Keep, 60)],
            OnViolation::Discard,
            60,
        ),
    ] {
        let decision = plain.decided(&policy(layers), one("ls", READ));
        assert_eq!((decision.on_violation, decision.approval_seconds), (on_violation, seconds));
    }
}

#[test]
fn the_lowest_cap_of_a_limit_applies_without_denying() {
    let layer = |tier, text: &str| {
        Layer::parse(tier, Path::new("policy.toml"), &format!("[caps]\n{text}"), read).unwrap()
    };
    let both = policy([
        layer(Tier::System, "memory = '2GiB'\ncpus = 1.5\n"),
        layer(Tier::Vault, "memory = '1GiB'\npids = 50\ncpus = 2\nfile_size = 10\n"),
    ]);
    let decision = Request::plain().decided(&both, one("ls", READ));
    let set: Vec<_> = decision.limits_max.set().map(|(kind, value)| (kind.word(), value)).collect();
    assert_eq!(set, [("memory", 1 << 30), ("cpus", 1500), ("pids", 50), ("file_size", 10)]);
    assert_eq!(decision.action, Action::Allow);
    for bad in ["memory = 'none'", "memory = 0", "pids = -1", "cpus = 0", "disk = true", "file-size = 1"] {
        let read = Layer::parse(Tier::User, Path::new("p"), &format!("[caps]\n{bad}\n"), read);
        assert!(read.is_err(), "{bad} was accepted");
    }
}
