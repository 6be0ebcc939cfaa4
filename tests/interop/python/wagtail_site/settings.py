"""A Wagtail project with nothing of its own: the admin's form for images, and a user without leave to add any."""

import os
from pathlib import Path

FOLDER = Path(os.environ["SITE_FOLDER"])
MODE = FOLDER / "mode"
SECRET_KEY = "of-a-test"  # nothing is kept with it
DEBUG = False
ALLOWED_HOSTS = ["127.0.0.1"]
CSRF_TRUSTED_ORIGINS = [os.environ["SITE_ORIGIN"]]
USE_X_FORWARDED_HOST = True
ROOT_URLCONF = "wagtail_site.urls"
WAGTAIL_SITE_NAME = "Test"
WAGTAILADMIN_BASE_URL = os.environ["SITE_ORIGIN"]
WAGTAILIMAGES_MAX_UPLOAD_SIZE = 2_000
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": FOLDER / "site.sqlite", "OPTIONS": {"timeout": 30}}}
DEFAULT_AUTO_FIELD = "django.db.models.AutoField"
MEDIA_ROOT, MEDIA_URL, STATIC_URL = FOLDER / "media", "/media/", "/static/"
USE_TZ = True
INSTALLED_APPS = [
    "wagtail.users",
    "wagtail.images",
    "wagtail.documents",
    "wagtail.search",
    "wagtail.admin",
    "wagtail",
    "taggit",
    "modelcluster",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
]
MIDDLEWARE = [
    "wagtail_site.urls.maintenance",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
