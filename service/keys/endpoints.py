"""Endpoints under /v1/keys and /v1/session."""

from typing import Annotated

from fastapi import APIRouter, Cookie, Response

from service.http.problem_kinds import may_answer
from service.http.route import ApiRoute
from service.keys.dependencies import SESSION_COOKIE, Admin
from service.keys.schemas import CreatedKey, KeyList, NewKey, SignIn
from service.keys.service import SESSION_LIFETIME
from service.services import ServicesDependency

router = APIRouter(prefix="/v1", tags=["keys"], route_class=ApiRoute)


@router.get("/keys")
@may_answer("forbidden")
def list_keys(services: ServicesDependency, _: Admin) -> KeyList:
    return KeyList(items=services.keys.list_all())


@router.post("/keys", status_code=201)
@may_answer("conflict")
def create_key(new_key: NewKey, services: ServicesDependency, _: Admin) -> CreatedKey:
    return services.keys.create(new_key.name, new_key.role)


@router.delete("/keys/{key_id}", status_code=204)
@may_answer("conflict")
def remove_key(key_id: str, services: ServicesDependency, _: Admin) -> None:
    services.keys.remove(key_id)


@router.post("/session", status_code=204)
@may_answer("unauthenticated")
def sign_in(body: SignIn, services: ServicesDependency, response: Response) -> None:
    response.set_cookie(
        SESSION_COOKIE,
        services.keys.sign_in(body.token),
        max_age=int(SESSION_LIFETIME.total_seconds()),
        httponly=True,
        samesite="strict",
    )


@router.delete("/session", status_code=204)
def sign_out(
    services: ServicesDependency, response: Response, token: Annotated[str | None, Cookie(alias=SESSION_COOKIE)] = None
) -> None:
    if token:
        services.keys.sign_out(token)
    response.delete_cookie(SESSION_COOKIE, httponly=True, samesite="strict")
