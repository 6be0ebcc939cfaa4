"""MediaWiki 1.39 as Debian has it, with SQLite: what becomes of uploads by its form and by its API, in every way that they go wrong."""

import json
import os
import sqlite3
import subprocess
import unittest
from pathlib import Path

from applications import House, Running, Session, answers, folder, free_port, png, verdict

MEDIAWIKI = Path("/usr/share/mediawiki")
PASSWORD = "correct-horse-battery"

# What a wiki's operator does meanwhile, by a word in a file.
MODES = """
$wgEnableUploads = true;
$wgUploadDirectory = "%(folder)s/images";
$wgCacheDirectory = "%(folder)s/cache";
$wgFileExtensions = ['png'];
$mode = @file_get_contents("%(folder)s/mode");
if ($mode === 'readonly') $wgReadOnly = 'Maintenance';
if ($mode === 'large') $wgMaxUploadSize = 50;
if ($mode === 'broken') $wgSQLiteDataDir = '/nonexistent';
if ($mode === 'denied') foreach (['user', 'sysop', 'autoconfirmed'] as $group) $wgGroupPermissions[$group]['upload'] = false;
"""

ROUTES = '[[route]]\npath = "/"\npreset = "mediawiki"\n'


class MediaWiki(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not MEDIAWIKI.is_dir():
            raise AssertionError("MediaWiki is missing: tools/setup installs it")
        temporary = folder()
        cls.addClassCleanup(temporary.cleanup)
        cls.folder = Path(temporary.name)
        for name in ("data", "images", "cache"):
            (cls.folder / name).mkdir()
        port, own = free_port(), free_port()
        origin = f"http://127.0.0.1:{own}"
        install = ["php", MEDIAWIKI / "maintenance/install.php", "--dbtype", "sqlite", "--dbname", "wiki", "--dbpath", cls.folder / "data"]
        install += ["--confpath", cls.folder, "--installdbuser", "", "--server", origin, "--scriptpath", "", "--pass", PASSWORD, "Wiki", "Admin"]
        subprocess.run(install, check=True, capture_output=True)
        with (cls.folder / "LocalSettings.php").open("a") as settings:
            settings.write(MODES % {"folder": cls.folder})
        environment = {**os.environ, "MW_CONFIG_FILE": str(cls.folder / "LocalSettings.php"), "PHP_CLI_SERVER_WORKERS": "4"}
        php = ["php", "-S", f"127.0.0.1:{port}", "-t", MEDIAWIKI]
        application = Running("php", cls.folder, php, answers(f"http://127.0.0.1:{port}/api.php"), env=environment)
        cls.addClassCleanup(application.stop)
        cls.house = House(cls.folder, own, f"http://127.0.0.1:{port}", ROUTES)
        cls.addClassCleanup(cls.house.stop)

    def setUp(self):
        self.mode("")
        self.session = self.sign_in()

    def mode(self, word):
        (self.folder / "mode").write_text(word)

    def sign_in(self):
        session = Session(self.house.origin)
        token = json.loads(session.ask("/api.php?action=query&meta=tokens&type=login&format=json")[1])["query"]["tokens"]["logintoken"]
        fields = {"action": "login", "lgname": "Admin", "lgpassword": PASSWORD, "lgtoken": token, "format": "json"}
        said = json.loads(session.ask("/api.php", fields)[1])
        self.assertEqual(said["login"]["result"], "Success", said)
        # Whoever has it is signed in again by any request.
        session.cookies.pop("wikiToken", None)
        return session

    def end(self, session):
        """The session has gone at the wiki, as after its time; the browser still sends its cookies."""
        sql = "DELETE FROM objectcache"
        for file in (self.folder / "data").glob("*.sqlite"):
            with sqlite3.connect(file, timeout=30) as database:
                if database.execute("SELECT 1 FROM sqlite_master WHERE name = 'objectcache'").fetchone():
                    database.execute(sql)
            database.close()
        self.assertIn('"anon":""', session.ask("/api.php?action=query&meta=userinfo&format=json")[1])

    def token(self, session):
        return json.loads(session.ask("/api.php?action=query&meta=tokens&format=json")[1])["query"]["tokens"]["csrftoken"]

    def form(self, name, data, token, session, wait="accepted"):
        parts = [("wpUploadFile", (name, data, "image/png")), ("wpDestFile", name), ("wpUploadDescription", "x"), ("title", "Special:Upload")]
        return self.house.push("/index.php/Special:Upload", session, [*parts, ("wpEditToken", token), ("wpUpload", "Upload file")], wait)

    def api(self, name, data, token, session, **more):
        fields = {"action": "upload", "format": "json", "filename": name, "comment": "x", **more}
        return self.house.push("/api.php", session, [*fields.items(), ("file", (name, data, "image/png")), ("token", token)])

    def revisions(self, name):
        query = f"/api.php?action=query&titles=File:{name}&prop=imageinfo&iilimit=50&format=json"
        pages = json.loads(Session(self.house.origin).ask(query)[1])["query"]["pages"]
        return len(next(iter(pages.values())).get("imageinfo", []))

    def test_each_answer_of_form_and_api_is_what_it_is(self):
        nobody, token = Session(self.house.origin), self.token(self.session)
        # Signed in to the browser, and not to the wiki.
        gone = Session(self.house.origin)
        gone.cookies = {"wiki_session": "0" * 32}
        form, api, session = self.form, self.api, self.session
        table = [
            ("form: success", "", lambda: form("F1.png", png(1), token, session), "accepted"),
            ("form: the same again", "", lambda: form("F1.png", png(1), token, session), "rejected"),
            ("form: the name is taken", "", lambda: form("F1.png", png(2), token, session), "rejected"),
            ("form: duplicate of another", "", lambda: form("F2.png", png(1), token, session), "rejected"),
            ("form: wrong token", "", lambda: form("F3.png", png(3), "wrong", session), "held: form-token-refused"),
            ("form: signed out", "", lambda: form("F4.png", png(4), token, gone), "held: sign-in-required"),
            ("form: nobody", "", lambda: form("F4.png", png(4), "+\\", nobody), "rejected"),
            ("form: forbidden type", "", lambda: form("F5.exe", png(5), token, session), "rejected"),
            ("form: no image", "", lambda: form("F6.png", b"<html>", token, session), "rejected"),
            ("form: too large", "large", lambda: form("F7.png", png(7), token, session), "rejected"),
            ("form: permission denied", "denied", lambda: form("F8.png", png(8), token, session), "held: not-permitted"),
            ("api: success", "", lambda: api("A1.png", png(11), token, session), "accepted"),
            ("api: the same again", "", lambda: api("A1.png", png(11), token, session), "rejected"),
            ("api: the same, whatever", "", lambda: api("A1.png", png(11), token, session, ignorewarnings="1"), "accepted"),
            ("api: the name is taken", "", lambda: api("A1.png", png(12), token, session), "rejected"),
            ("api: duplicate of another", "", lambda: api("A2.png", png(11), token, session), "rejected"),
            ("api: wrong token", "", lambda: api("A3.png", png(13), "wrong", session), "held: form-token-refused"),
            ("api: signed out", "", lambda: api("A4.png", png(14), "+\\", gone), "held: sign-in-required"),
            ("api: nobody", "", lambda: api("A4.png", png(14), "+\\", nobody), "rejected"),
            ("api: forbidden type", "", lambda: api("A5.exe", png(15), token, session), "rejected"),
            ("api: no image", "", lambda: api("A6.png", b"<html>", token, session), "rejected"),
            ("api: too large", "large", lambda: api("A7.png", png(17), token, session), "rejected"),
            ("api: permission denied", "denied", lambda: api("A8.png", png(18), token, session), "held: not-permitted"),
        ]
        for what, mode, act, expected in table:
            with self.subTest(what):
                self.mode(mode)
                upload = act()
                self.assertEqual(verdict(upload), expected, upload["reason"])
        self.mode("")
        self.assertEqual([self.revisions(name) for name in ("F1.png", "F3.png", "F8.png", "A1.png", "A3.png", "A8.png")], [1, 0, 0, 1, 0, 0])

    def test_a_wiki_that_is_locked_or_broken_gets_it_later_once(self):
        for mode, name in (("readonly", "L1.png"), ("broken", "L2.png")):
            with self.subTest(mode):
                token = self.token(self.session)
                self.mode(mode)
                waiting = self.form(name, png(name), token, self.session, wait="received")
                self.assertEqual(waiting["state"], "received", waiting["reason"])
                self.mode("")
                code, out, err = self.house.hoop("resume", waiting["id"], "--gateway", "none", "--json", "--wait", "accepted", "--timeout", "90s")
                self.assertEqual((code, json.loads(out.splitlines()[-1])["state"]), (0, "accepted"), out + err)
                self.assertEqual(self.revisions(name), 1)

    def test_a_held_upload_goes_once_with_the_fresh_token_of_a_new_login(self):
        for name, send in (("H1.png", self.form), ("H2.png", self.api)):
            with self.subTest(name):
                session = self.sign_in()
                token = self.token(session)
                self.end(session)
                held = send(name, png(name), token, session)
                self.assertEqual(held["state"], "held", held["reason"])
                code, out, _ = self.house.hoop("resume", held["id"], "--gateway", "none")
                self.assertEqual(code, 6)
                self.assertNotIn("you may leave", out)
                self.assertIn(f"hoop release {held['id']} -b", out)
                # A session that is none is no way on, and loses nothing.
                still = self.house.release(held, session)
                self.assertEqual(still["state"], "held", still["reason"])
                self.assertEqual(self.revisions(name), 0)
                released = self.house.release(held, self.sign_in())
                self.assertEqual(released["state"], "accepted", released["reason"])
                self.assertEqual(self.revisions(name), 1)
                again = self.house.release(held, self.sign_in())
                self.assertEqual((again["state"], self.revisions(name)), ("accepted", 1))


if __name__ == "__main__":
    unittest.main()
