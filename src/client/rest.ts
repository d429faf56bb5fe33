export type ClientErrorCode =
  | 'disconnected'
  | 'disposed'
  | 'timeout'
  /** The server answered with an error status. */
  | 'refused'
  /** The server answered with something that the contract does not know. */
  | 'bad-answer'
  /** The server could not be reached. */
  | 'unreachable';

export interface IClientErrorDetails {
  status?: number;
  serverCode?: string;
  field?: string;
}

/** The one error class of the client room: what was expected, what came, what to try. */
export class ClientError extends Error {
  constructor(
    readonly code: ClientErrorCode,
    message: string,
    details: IClientErrorDetails = {}
  ) {
    super(message);
    this.status = details.status;
    this.serverCode = details.serverCode;
    this.field = details.field;
  }

  override readonly name = 'ClientError';
  readonly status: number | undefined;
  readonly serverCode: string | undefined;
  readonly field: string | undefined;
}

export interface IRunsApiOptions {
  /** The Jupyter server's base URL, with its trailing slash. */
  baseUrl: string;
  /** `fetch`, or something like it that adds the server's login and XSRF token. */
  fetch: (url: string, init: RequestInit) => Promise<Response>;
}

/**
 * Requests to the Jupyter server's endpoints. Every method rejects with a `ClientError`, or with the reason
 * of an aborted signal.
 */
export class Rest {
  constructor(private readonly options: IRunsApiOptions) {}

  /** The JSON of an answer. */
  async json(path: string, init: RequestInit): Promise<unknown> {
    return jsonOf(await this.request(path, init));
  }

  /** The answer to a request that goes as it is. */
  ask(path: string, request: object, signal?: AbortSignal): Promise<Response> {
    return this.request(path, { method: 'POST', body: JSON.stringify(request), signal });
  }

  /** An answer; `also` is a status that is no refusal though it is no success. */
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

/**
 * A question of an instrument about the recording of a run, asked and answered as JSON. The Jupyter server
 * answers it below the run's endpoint, the engine's host under the same name, and a report's file where the
 * question was asked while the file was made.
 */
export interface IQuestion<R extends object, A> {
  readonly name: string;
  /** Whether the engine's host answers it too. */
  readonly inEngine: boolean;
  /**
   * Check an answer; null where the recording has nothing of it.
   *
   * @throws ClientError `bad-answer`.
   */
  read(answer: unknown): A | null;
  /** How a report's file holds what was answered; absent where it holds none. */
  readonly held?: IHeldForm<R, A>;
}

/** How a report's file holds answers to a question. */
interface IHeldForm<R, A> {
  /** What is asked while the file is made, so that the answer serves whoever reads it. */
  asked?(request: R): R;
  /** The part of an answer that a file has room for. */
  cut?(answer: A): A;
  /** What of a request the answer depends on: requests of one key have one answer. */
  key(request: R): string;
  /** Read an answer again that was written as JSON text; `JSON.parse` when absent. */
  parse?(text: string): A | null;
}

/** Asks the one question; null where nothing is recorded of it. */
export type Ask<R extends object, A> = (request: R, signal?: AbortSignal) => Promise<A | null>;

/** The same of one of several runs, by its id. */
export type AskOf<R extends object, A> = (id: string, request: R, signal?: AbortSignal) => Promise<A | null>;
