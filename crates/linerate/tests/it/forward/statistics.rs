//! With and without statistics, sessions are listed, watched, flushed and aged.

use std::time::Duration;

use linerate_testkit::{root_or_skip, wait_for};
use nix::sys::signal::Signal;

use super::support::Net;

#[test]
fn sessions_can_be_listed_watched_and_flushed() {
    root_or_skip!();
    for statistics in ["slot", "none"] {
        let net = Net::new();
        let daemon = net.run(&format!("--statistics {statistics}"));
        assert_eq!(net.json("status")[0]["statistics"], statistics);
        let listed = |port: u16| net.json(&format!("sessions --port {port}"));
        for port in [4001, 4002] {
            assert_eq!(net.ask(0, port, 40), 40, "{statistics}");
        }
        for session in listed(4001) {
            let packets = session["packets"].as_u64().unwrap();
            let is_right = match statistics {
                "none" => packets == 0,
                _ => packets == 40,
            };
            assert!(is_right, "{statistics}: {session}");
            assert_eq!(session["state"], "fast", "{statistics}: {session}");
        }
        let status = &net.json("status")[0]["sessions"];
        assert_eq!(status["active"], 4, "{statistics}: {status}");
        assert!(status["capacity"].as_u64() >= Some(4096), "{statistics}: {status}");
        assert!(status["memory_bytes"].as_u64() > Some(4096 * 128), "{statistics}: {status}");

        // Rates need something to happen between the two looks.
        let top = std::thread::scope(|scope| {
            let top = scope.spawn(|| net.json("top --once --interval 2s").remove(0));
            while !top.is_finished() {
                assert_eq!(net.ask(0, 4001, 20), 20, "{statistics}");
                std::thread::sleep(Duration::from_millis(10));
            }
            top.join().unwrap()
        });
        let fastest = top["fastest"].as_array().unwrap();
        assert!(fastest.len() >= 2, "{statistics}: {top}");
        if statistics != "none" {
            assert!(fastest[0]["rate"]["packets"].as_f64() > Some(0.0), "{statistics}: {top}");
            assert!(
                fastest[0]["session"].as_str().unwrap().contains("4001"),
                "{statistics}: {top}"
            );
        }

        assert_eq!(net.json("flush --port 4001")[0]["ended"], 2, "{statistics}");
        assert!(listed(4001).is_empty(), "{statistics}: {:?}", listed(4001));
        assert_eq!(net.json("flush")[0]["ended"], 2, "{statistics}");
        assert!(net.sessions().is_empty(), "{statistics}: {:?}", net.sessions());
        let (status, _, said) = daemon.end(Signal::SIGTERM);
        assert!(status.success() && !net.is_attached(), "{statistics}: {said}");
    }
}

#[test]
fn idle_sessions_are_forgotten() {
    root_or_skip!();
    for statistics in ["slot", "none"] {
        let net = Net::new();
        let daemon = net.run(&format!("--statistics {statistics} --udp-idle 1s"));
        let held = || net.json("status")[0]["sessions"]["active"].as_u64().unwrap();
        wait_for("a session", || net.ask(0, 4003, 5) == 5 && held() == 2);
        wait_for("it to be forgotten", || held() == 0);
        wait_for("its place to be free", || net.json("sessions --state ended").is_empty());
        let (status, _, said) = daemon.end(Signal::SIGTERM);
        assert!(status.success(), "{statistics}: {said}");
    }
}

#[test]
fn a_session_ends_at_its_age_and_is_learned_anew() {
    root_or_skip!();
    let net = Net::new();
    let daemon = net.run("--lifetime 2s");
    let mut oldest = 0.0_f64;
    // It never pauses, so that it is never idle: only its age can make it start again.
    wait_for("a session to start again", || {
        assert_eq!(net.ask(0, 4000, 20), 20);
        let sessions = net.json("sessions --port 4000 --address 10.9.1.2 --sort source");
        let Some(age) = sessions.first().and_then(|one| one["age"].as_f64()) else {
            return false;
        };
        let before = oldest;
        oldest = before.max(age);
        age < before
    });
    let (status, _, said) = daemon.end(Signal::SIGTERM);
    assert!(status.success(), "{said}");
}
