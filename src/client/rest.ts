import { ClientError } from './client-error';

/** How the API is reached. */
export interface IRunsApiOptions {
  /** The Jupyter server's base URL, with its trailing slash. */
  baseUrl: string;
  /** `fetch`, or something like it that adds the server's login and XSRF token. */
  fetch: (url: string, init: RequestInit) => Promise<Response>;
}

/** Requests to the Jupyter server's endpoints. Every method rejects with a `ClientError`, or with the reason of an aborted signal. */
export class Rest {
  constructor(private readonly options: IRunsApiOptions) {}

  /** The JSON of an answer. */
  async json(path: string, init: RequestInit): Promise<unknown> {
    return jsonOf(await this.request(path, init));
  }

  /**
   * An answer.
   *
   * @param path - Below `megalens/api/`.
   * @param init - Method, body and signal.
   * @param also - A status that is no refusal though it is no success.
   */
  async request(path: string, init: RequestInit, also?: number): Promise<Response> {
    const headers = init.body === undefined ? undefined : { 'Content-Type': 'application/json' };
    let response: Response;
    try {
      response = await this.options.fetch(`${this.options.baseUrl}megalens/api/${path}`, {
        ...init,
        headers
      });
    } catch (error) {
      if (init.signal?.aborted) {
        throw error;
      }
      throw new ClientError(
        'unreachable',
        'The Jupyter server could not be reached. Check that it is running and try again.'
      );
    }
    if (!response.ok && response.status !== also) {
      throw await refusalOf(response);
    }
    return response;
  }
}

/** The JSON of an answer that has come. */
export async function jsonOf(response: Response): Promise<unknown> {
  try {
    return await response.json();
  } catch {
    throw badAnswer('something that is not JSON');
  }
}

export function runPath(id: string): string {
  return `runs/${encodeURIComponent(id)}`;
}

export function asObject(value: unknown): Record<string, unknown> {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw badAnswer('no object');
  }
  return value as Record<string, unknown>;
}

export function asArray(value: unknown): unknown[] {
  if (!Array.isArray(value)) {
    throw badAnswer('no list');
  }
  return value;
}

export function badAnswer(what: string): ClientError {
  return new ClientError(
    'bad-answer',
    `The Jupyter server answered with ${what}. Its Megalens may be of another version: update it and reload.`
  );
}

async function refusalOf(response: Response): Promise<ClientError> {
  const body: unknown = await response.json().catch(() => null);
  const { code, message, field } =
    typeof body === 'object' && body !== null ? (body as Record<string, unknown>) : {};
  return new ClientError(
    'refused',
    typeof message === 'string'
      ? message
      : `The Jupyter server answered ${response.status}. Log in again or look at its log.`,
    {
      status: response.status,
      serverCode: typeof code === 'string' ? code : undefined,
      field: typeof field === 'string' ? field : undefined
    }
  );
}
