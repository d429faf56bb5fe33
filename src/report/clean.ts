import { cleanPaths } from '../views/shared/clean-paths';

export function cleaned<T>(value: T): T {
  return JSON.parse(JSON.stringify(value), (_, each: unknown) =>
    typeof each === 'string' ? cleanPaths(each) : each
  ) as T;
}
