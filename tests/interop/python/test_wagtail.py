"""Wagtail 8 on Django 5.2, with SQLite: what becomes of uploads by its forms, in every way that they go wrong."""

import os
import subprocess
import sys
import unittest
from pathlib import Path

from applications import House, Running, Session, answers, folder, free_port, hidden, png, verdict

HERE = Path(__file__).parent
ADD, MANY = "/admin/images/add/", "/admin/images/multiple/add/"
ROUTES = '[[route]]\npath = "/"\npreset = "wagtail"\n'
USERS = """
from django.contrib.auth.models import Group, Permission, User
User.objects.create_superuser("alice", "a@example.org", "secret")
bob = User.objects.create_user("bob", "b@example.org", "secret")
bob.user_permissions.add(Permission.objects.get(codename="access_admin"))
"""


class Wagtail(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        temporary = folder()
        cls.addClassCleanup(temporary.cleanup)
        cls.folder = Path(temporary.name)
        port, own = free_port(), free_port()
        names = {"SITE_FOLDER": str(cls.folder), "SITE_ORIGIN": f"http://127.0.0.1:{own}", "DJANGO_SETTINGS_MODULE": "wagtail_site.settings"}
        cls.environment = {**os.environ, **names, "PYTHONPATH": str(HERE), "PYTHONDONTWRITEBYTECODE": "1"}
        cls.manage("migrate", "--verbosity", "0")
        cls.manage("shell", "-c", USERS)
        command = [sys.executable, "-m", "django", "runserver", "--noreload", f"127.0.0.1:{port}"]
        application = Running("django", cls.folder, command, answers(f"http://127.0.0.1:{port}/admin/login/"), env=cls.environment, cwd=HERE)
        cls.addClassCleanup(application.stop)
        cls.house = House(cls.folder, own, f"http://127.0.0.1:{port}", ROUTES)
        cls.addClassCleanup(cls.house.stop)

    @classmethod
    def manage(cls, *arguments):
        command = [sys.executable, "-m", "django", *arguments]
        ran = subprocess.run(command, capture_output=True, text=True, env=cls.environment, cwd=HERE)
        if ran.returncode:
            raise AssertionError(ran.stdout + ran.stderr)
        return ran.stdout.strip().splitlines()

    def setUp(self):
        self.mode("")

    def mode(self, word):
        (self.folder / "mode").write_text(word)

    def sign_in(self, user="alice"):
        session = Session(self.house.origin)
        page = session.ask("/admin/login/")[1]
        fields = {"username": user, "password": "secret", "csrfmiddlewaretoken": hidden(page, "csrfmiddlewaretoken"), "next": "/admin/"}
        self.assertEqual(session.ask("/admin/login/", fields)[0], 302)
        return session

    def sign_out(self, session):
        """As the site sees it; the browser's cookies stay."""
        cookies = dict(session.cookies)
        page = session.ask(ADD)[1]
        self.assertEqual(session.ask("/admin/logout/", {"csrfmiddlewaretoken": hidden(page, "csrfmiddlewaretoken")})[0], 302)
        session.cookies = cookies

    def token(self, session):
        return hidden(session.ask(ADD)[1], "csrfmiddlewaretoken")

    def form(self, title, file, token, session, wait="accepted"):
        parts = [("csrfmiddlewaretoken", token), ("title", title), ("file", file), ("tags", ""), ("focal_point_x", "")]
        return self.house.push(ADD, session, parts, wait)

    def many(self, title, file, token, session):
        return self.house.push(MANY, session, [("csrfmiddlewaretoken", token), ("title", title), ("files[]", file)])

    def images(self, title):
        counted = f"from wagtail.images.models import Image; print(Image.objects.filter(title={title!r}).count())"
        return int(self.manage("shell", "-c", counted)[-1])

    def test_each_answer_of_both_forms_is_what_it_is(self):
        alice, bob, nobody = self.sign_in(), self.sign_in("bob"), Session(self.house.origin)
        token, gone = self.token(alice), self.sign_in()
        of_gone = self.token(gone)
        self.sign_out(gone)
        of_bob = bob.cookies["csrftoken"]
        picture = lambda seed: ("a.png", png(seed), "image/png")
        form, many = self.form, self.many
        table = [
            ("form: success", lambda: form("f1", picture(1), token, alice), "accepted"),
            ("form: the same again", lambda: form("f1", picture(1), token, alice), "accepted"),
            ("form: wrong token", lambda: form("f2", picture(2), "wrong", alice), "held: form-token-refused"),
            ("form: signed out", lambda: form("f3", picture(3), of_gone, gone), "held: sign-in-required"),
            ("form: nobody", lambda: form("f3", picture(3), of_gone, nobody), "rejected"),
            ("form: forbidden type", lambda: form("f4", ("a.exe", b"MZ", "application/x-dosexec"), token, alice), "rejected"),
            ("form: no image", lambda: form("f5", ("a.png", b"<html>", "image/png"), token, alice), "rejected"),
            ("form: too large", lambda: form("f6", ("a.png", png("x" * 3_000), "image/png"), token, alice), "rejected"),
            ("form: permission denied", lambda: form("f7", picture(7), of_bob, bob), "held: not-permitted"),
            ("many: success", lambda: many("m1", picture(11), token, alice), "accepted"),
            ("many: wrong token", lambda: many("m2", picture(12), "wrong", alice), "held: form-token-refused"),
            ("many: signed out", lambda: many("m3", picture(13), of_gone, gone), "held: sign-in-required"),
            ("many: forbidden type", lambda: many("m4", ("a.exe", b"MZ", "application/x-dosexec"), token, alice), "rejected"),
            ("many: too large", lambda: many("m6", ("a.png", png("x" * 3_000), "image/png"), token, alice), "rejected"),
        ]
        for what, act, expected in table:
            with self.subTest(what):
                upload = act()
                self.assertEqual(verdict(upload), expected, upload["reason"])
        titles = ("f1", "f2", "f3", "f4", "f5", "f6", "f7", "m2", "m3", "m4", "m6")
        self.assertEqual([self.images(title) for title in titles], [2] + [0] * 10)

    def test_a_site_in_maintenance_or_broken_gets_it_later_once(self):
        for mode in ("maintenance", "broken"):
            with self.subTest(mode):
                session = self.sign_in()
                token = self.token(session)
                self.mode(mode)
                waiting = self.form(mode, ("a.png", png(mode), "image/png"), token, session, wait="received")
                self.assertEqual(waiting["state"], "received", waiting["reason"])
                self.mode("")
                code, out, err = self.house.hoop("resume", waiting["id"], "--gateway", "none", "--json", "--wait", "accepted", "--timeout", "90s")
                self.assertEqual(code, 0, out + err)
                self.assertEqual(self.images(mode), 1)

    def test_a_held_upload_goes_once_with_the_fresh_token_of_a_new_login(self):
        session = self.sign_in()
        token = self.token(session)
        self.sign_out(session)
        held = self.form("held", ("a.png", png("held"), "image/png"), token, session)
        self.assertEqual(verdict(held), "held: sign-in-required", held["reason"])
        code, out, _ = self.house.hoop("resume", held["id"], "--gateway", "none")
        self.assertEqual(code, 6)
        self.assertNotIn("you may leave", out)
        still = self.house.release(held, session)
        self.assertEqual((still["state"], self.images("held")), ("held", 0), still["reason"])
        released = self.house.release(held, self.sign_in())
        self.assertEqual((released["state"], self.images("held")), ("accepted", 1), released["reason"])
        again = self.house.release(held, self.sign_in())
        self.assertEqual((again["state"], self.images("held")), ("accepted", 1), again["reason"])


if __name__ == "__main__":
    unittest.main()
