/** How the demo training of the Jupyter server stands. */
export type DemoState =
  /** The administrator does not allow it, or this server knows nothing of it. */
  | { readonly kind: 'off' }
  /** Not started, stopped, or trained to its end. */
  | { readonly kind: 'idle' }
  /** Its process runs; its run is not live yet. */
  | { readonly kind: 'starting' }
  | { readonly kind: 'running'; readonly run: string }
  /** It ended by itself with an error; `message` is the last line that it wrote. */
  | { readonly kind: 'failed'; readonly message: string };

/** What can be asked of the demo training. */
export type DemoWish = 'look' | 'start' | 'stop';

/** Read the server's answer; an answer that says nothing known is `off`. */
export function demoStateOf(answer: Readonly<Record<string, unknown>>): DemoState {
  const { state, run, message } = answer;
  switch (state) {
    case 'idle':
    case 'starting':
      return { kind: state };
    case 'running':
      return { kind: 'running', run: String(run) };
    case 'failed':
      return { kind: 'failed', message: String(message) };
    default:
      return { kind: 'off' };
  }
}
