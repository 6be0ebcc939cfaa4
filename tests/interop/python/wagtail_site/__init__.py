"""A Wagtail project for test_wagtail.py."""
