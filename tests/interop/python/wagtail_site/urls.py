"""Wagtail's admin, and what its operator does meanwhile, by a word in a file."""

from django.conf import settings
from django.http import HttpResponse
from django.urls import include, path
from wagtail.admin import urls


def maintenance(get_response):
    def respond(request):
        mode = settings.MODE.read_text() if settings.MODE.exists() else ""
        if request.method == "POST" and mode == "maintenance":
            return HttpResponse("later", status=503)
        if request.method == "POST" and mode == "broken":
            raise RuntimeError("broken, as asked")
        return get_response(request)

    return respond


urlpatterns = [path("admin/", include(urls))]
