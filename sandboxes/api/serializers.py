"""The wire: requests as they are checked, answers as they are sent (contract.md section 1)."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from drf_spectacular.utils import extend_schema_serializer
from rest_framework import serializers

from sandboxes.api.fields import Base64, ClassName, Environment, Flag, Strings, Text, Whole
from sandboxes.models import Project, Sandbox, Volume


def seconds(moment: datetime | None) -> int | None:
    return None if moment is None else int(moment.timestamp())


# Requests. Every member is optional to the parser, null is the same as absent, and unknown members are ignored.


class LeaseFields(serializers.Serializer[Any]):
    project = Text(help_text="A project of the org; needed by class dev and desktop, refused by exec.")
    runtime = Text(help_text="An isolation to ask for: gvisor or runc, where they are offered.")
    ttlSec = Whole(help_text="Seconds until the lease ends; 0 or absent: the class's own; at most 86400.")
    cluster = Text(help_text="Only the home cluster is known: an empty name.")

    def get_fields(self) -> dict[str, Any]:
        return {"class": ClassName(help_text="exec (the default), dev or desktop."), **super().get_fields()}


class SandboxIn(LeaseFields):
    image = Text(help_text="An image to run instead of the class's own.")
    kind = Text(help_text="Ignored.")


class LeaseIn(LeaseFields):
    id = Text(help_text="A lease to resume; when it is gone, a new one is taken.")
    disk = Flag(help_text="Ignored: every sandbox has a disk, and a project keeps its own.")


class CommandFields(serializers.Serializer[Any]):
    argv = Strings(help_text="A program and its arguments; wins over command.")
    command = Text(help_text="A line for sh -c.")
    stdin = Text(help_text="What the command reads on its standard input.")
    dir = Text(help_text="Where it runs, in the workdir or absolute; the workdir when absent.")
    timeoutSec = Whole(help_text="Seconds until it is ended with all that it started; at most, and by default, the server's maximum.")
    env = Environment(help_text="More environment variables.")
    encoding = serializers.ChoiceField(
        ["utf-8", "base64"], required=False, allow_null=True, help_text="base64: both outputs exactly, in base64."
    )


class ExecIn(CommandFields):
    id = Text(help_text="Ignored: the path names the sandbox.")


class IdIn(serializers.Serializer[Any]):
    id = Text(help_text="A sandbox that the org holds.")


class RunIn(IdIn, CommandFields):
    blind = Strings(
        child=Text(allow_null=False, max_length=8192),
        max_length=64,
        help_text="Secrets of 8 characters and more to redact in the outputs.",
    )


class PathIn(IdIn):
    path = Text(help_text="A path in the workdir; empty is the workdir itself.")


class WriteIn(PathIn):
    data = Base64(  # type: ignore[assignment]
        help_text="The file's content; absent: empty."
    )


class EndIn(IdIn):
    purge = Flag(help_text="Delete the project's volume, too.")


class ProjectIn(serializers.Serializer[Any]):
    project = Text(help_text="Its name; made a slug.")


# Answers. Members that are empty are left out.


class SandboxOut(serializers.Serializer[Any]):
    id = serializers.CharField()
    org = serializers.CharField()
    kind = serializers.CharField()
    status = serializers.ChoiceField(["pending", "running", "parked", "error"])
    image = serializers.CharField()
    createdAt = serializers.IntegerField()
    lastUsedAt = serializers.IntegerField()
    expiresAt = serializers.IntegerField(required=False)
    connectedAt = serializers.IntegerField(required=False)
    project = serializers.CharField(required=False)
    runtime = serializers.CharField(required=False)
    volume = serializers.CharField(required=False)
    error = serializers.CharField(required=False)
    actor = serializers.CharField(required=False)

    def get_fields(self) -> dict[str, Any]:
        return {**super().get_fields(), "class": serializers.CharField()}

    def to_representation(self, sandbox: Sandbox) -> dict[str, Any]:
        members = {
            "id": sandbox.pk,
            "org": sandbox.org.slug,
            "kind": "sandbox",
            "class": sandbox.klass,
            "status": sandbox.state,
            "project": sandbox.project_slug,
            "image": sandbox.image,
            "runtime": sandbox.runtime,
            "volume": sandbox.volume.name if sandbox.volume else "",
            "createdAt": seconds(sandbox.created_at),
            "lastUsedAt": seconds(sandbox.last_used_at),
            "expiresAt": seconds(sandbox.expires_at),
            "connectedAt": seconds(sandbox.connected_at),
            "error": sandbox.error,
            "actor": sandbox.actor,
        }
        return {name: value for name, value in members.items() if value not in (None, "")}


@extend_schema_serializer(many=False)
class SandboxListOut(serializers.Serializer[Any]):
    sandboxes = SandboxOut(many=True)
    next = serializers.CharField(required=False, help_text="The cursor of the next page, when there is one.")


class LeasedOut(serializers.Serializer[Any]):
    id = serializers.CharField()
    status = serializers.ChoiceField(["pending", "running", "parked", "error"])
    workdir = serializers.CharField()
    runtime = serializers.CharField(required=False)

    def get_fields(self) -> dict[str, Any]:
        return {**super().get_fields(), "class": serializers.CharField()}

    def to_representation(self, sandbox: Sandbox) -> dict[str, Any]:
        leased = {"id": sandbox.pk, "class": sandbox.klass, "status": sandbox.state, "workdir": sandbox.workdir}
        return leased | ({"runtime": sandbox.runtime} if sandbox.runtime else {})


class ResultOut(serializers.Serializer[Any]):
    exitCode = serializers.IntegerField()
    stdout = serializers.CharField()
    stderr = serializers.CharField()
    stdoutTruncated = serializers.BooleanField()
    stderrTruncated = serializers.BooleanField()
    timeoutSec = serializers.IntegerField(help_text="The deadline that applied.")
    encoding = serializers.ChoiceField(["utf-8", "base64"], required=False)
    signal = serializers.IntegerField(required=False, help_text="The signal that ended it.")
    startError = serializers.CharField(required=False, help_text="Why it could not start.")


class BlobOut(serializers.Serializer[Any]):
    path = serializers.CharField()
    dir = serializers.BooleanField()
    data = serializers.CharField(required=False, help_text="The file in base64.")  # type: ignore[assignment]
    entries = serializers.ListField(child=serializers.CharField(), required=False)


class WroteOut(serializers.Serializer[Any]):
    path = serializers.CharField(help_text="Absolute.")
    bytes = serializers.IntegerField(help_text="Its whole length.")


class StoppedOut(serializers.Serializer[Any]):
    stopped = serializers.IntegerField(help_text="Commands that ran.")


class OrgOut(serializers.Serializer[Any]):
    org = serializers.CharField()
    runtimes = serializers.ListField(child=serializers.CharField(), help_text="That it may ask for, those of the classes first.")
    images = serializers.ListField(child=serializers.CharField(), help_text="That it may ask for, the default first.")
    execCeiling = serializers.IntegerField()
    execInUse = serializers.IntegerField()
    sandboxes = serializers.IntegerField(help_text="Leases that it holds.")
    projects = serializers.IntegerField()
    volumes = serializers.IntegerField()


class ProjectOut(serializers.Serializer[Any]):
    project = serializers.CharField()
    createdAt = serializers.IntegerField()
    sandbox = serializers.CharField(required=False, help_text="The lease that holds it.")
    volume = serializers.CharField(required=False)

    def to_representation(self, project: Project) -> dict[str, Any]:
        members: dict[str, Any] = {"project": project.slug, "createdAt": seconds(project.created_at)}
        if held := [lease for lease in project.sandboxes.all() if lease.attached]:
            members["sandbox"] = held[0].pk
        if volume := getattr(project, "volume", None):
            members["volume"] = volume.name
        return members


@extend_schema_serializer(many=False)
class ProjectListOut(serializers.Serializer[Any]):
    projects = ProjectOut(many=True)


class VolumeOut(serializers.Serializer[Any]):
    name = serializers.CharField()
    project = serializers.CharField()
    size = serializers.IntegerField(help_text="Bytes.")
    createdAt = serializers.IntegerField()
    lastLeasedAt = serializers.IntegerField()

    def to_representation(self, volume: Volume) -> dict[str, Any]:
        return {
            "name": volume.name,
            "project": volume.project.slug,
            "size": volume.size,
            "createdAt": seconds(volume.created_at),
            "lastLeasedAt": seconds(volume.last_leased_at),
        }


@extend_schema_serializer(many=False)
class VolumeListOut(serializers.Serializer[Any]):
    volumes = VolumeOut(many=True)
