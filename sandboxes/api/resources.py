"""Beside the contract, in the same form: the caller's org, its projects and its volumes."""

from __future__ import annotations

from django.conf import settings
from django.db import transaction
from django.db.models import Prefetch
from rest_framework.request import Request
from rest_framework.response import Response

from sandboxes import errors, policy
from sandboxes.api import serializers as wire
from sandboxes.api.base import ApiViewSet
from sandboxes.api.schema import operation
from sandboxes.lifecycle import leases, transitions
from sandboxes.lifecycle.current import hub
from sandboxes.models import PUBLIC, Org, Project, Sandbox, Volume


class OrgViewSet(ApiViewSet):
    """The org that the key belongs to."""

    scopes = {"retrieve": "read"}

    @operation("get_org", "Your org: its ceilings, and what is in use", answers={200: wire.OrgOut})
    def retrieve(self, request: Request) -> Response:
        org = self.org()
        engine = hub().engine
        known = engine.images()
        own = policy.class_images(settings.SANDBOXHUB_CLASS_IMAGES, known[0]).values()
        allowed = [image for image in org.images if engine.any_image or image in known]
        return Response(
            {
                "org": org.slug,
                "runtimes": policy.usable_runtimes(tuple(engine.runtimes), org.runtimes),
                "images": list(dict.fromkeys((*own, *allowed))),
                "execCeiling": transitions.ceiling(org),
                "execInUse": transitions.counted(org),
                "sandboxes": Sandbox.objects.filter(org=org, state__in=PUBLIC).count(),
                "projects": Project.objects.filter(org=org).count(),
                "volumes": Volume.objects.filter(org=org, deleting=False).count(),
            }
        )


class ProjectViewSet(ApiViewSet):
    """The org's projects. A lease makes one at its first use."""

    scopes = {"list": "read", "retrieve": "read", "create": "manage", "destroy": "manage"}

    def found(self, slug: str) -> Project:
        project = Project.objects.select_related("volume").prefetch_related("sandboxes").filter(org=self.org(), slug=slug).first()
        if project is None:
            raise errors.NotFound("no such project")
        return project

    @operation("get_projects", "The projects of this org", answers={200: wire.ProjectListOut})
    def list(self, request: Request) -> Response:
        held = Prefetch("sandboxes", Sandbox.objects.filter(attached=True))
        projects = Project.objects.select_related("volume").prefetch_related(held).filter(org=self.org())
        return Response({"projects": wire.ProjectOut(list(projects), many=True).data})

    @operation("get_project", "One project", answers={200: wire.ProjectOut})
    def retrieve(self, request: Request, slug: str) -> Response:
        return Response(wire.ProjectOut(self.found(slug)).data)

    @operation("post_project", "Make a project, or find the one of that name", body=wire.ProjectIn, answers={201: wire.ProjectOut})
    def create(self, request: Request) -> Response:
        slug = policy.slug(self.payload(wire.ProjectIn).get("project", ""))
        if not slug:
            raise errors.ProjectRequired("a project needs a name of letters and digits")
        project, _ = Project.objects.get_or_create(org=self.org(), slug=slug)
        return Response(wire.ProjectOut(project).data, status=201)

    @operation("delete_project", "Delete a project that has neither a sandbox nor a volume", answers={204: None})
    def destroy(self, request: Request, slug: str) -> Response:
        project = self.found(slug)
        with transaction.atomic():
            Org.objects.select_for_update().get(pk=project.org_id)
            if Sandbox.objects.filter(project=project, attached=True).exists() or Volume.objects.filter(project=project).exists():
                raise errors.Conflict("the project is in use: end its sandbox and delete its volume first")
            project.delete()
        return Response(status=204)


class VolumeViewSet(ApiViewSet):
    """The org's volumes. A lease of class dev or desktop makes one; ending it keeps it."""

    scopes = {"list": "read", "retrieve": "read", "destroy": "manage"}

    def found(self, name: str) -> Volume:
        volume = Volume.objects.select_related("project").filter(org=self.org(), name=name, deleting=False).first()
        if volume is None:
            raise errors.NotFound("no such volume")
        return volume

    @operation("get_volumes", "The volumes of this org", answers={200: wire.VolumeListOut})
    def list(self, request: Request) -> Response:
        volumes = Volume.objects.select_related("project").filter(org=self.org(), deleting=False)
        return Response({"volumes": wire.VolumeOut(list(volumes), many=True).data})

    @operation("get_volume", "One volume", answers={200: wire.VolumeOut})
    def retrieve(self, request: Request, name: str) -> Response:
        return Response(wire.VolumeOut(self.found(name)).data)

    @operation("delete_volume", "Delete a volume that no sandbox holds, and its data", answers={204: None})
    def destroy(self, request: Request, name: str) -> Response:
        leases.delete_volume(self.found(name), actor=self.actor())
        return Response(status=204)
