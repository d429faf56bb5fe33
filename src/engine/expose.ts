import { Pipe } from './pipe';

/** Put the pipe where the engine's process, `megalens/pictures/engine/child.py`, calls it. */
export function expose(): void {
  const pipe = new Pipe();
  const megalensEngine = {
    begin: (name: string, args: string) => pipe.begin(name, args),
    room: (ask: number, length: number) => pipe.room(ask, length),
    answer: (ask: number, json: string) => pipe.answer(ask, json),
    refuse: (ask: number, json: string) => pipe.refuse(ask, json),
    pump: () => pipe.pump(),
    bytes: (place: number) => pipe.bytes(place)
  };
  Object.defineProperty(globalThis, 'megalensEngine', { value: megalensEngine });
}
