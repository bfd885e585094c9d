"""What the admin's pages ask of the process that shows them."""

from django import template

from sandboxes.lifecycle import current

register = template.Library()
register.simple_tag(current.warnings, name="isolation_warnings")
