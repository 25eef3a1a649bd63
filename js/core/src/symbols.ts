// `await using` compiles to code that looks these up; early releases of Node 20 lack them.
for (const name of ["dispose", "asyncDispose"] as const) {
  if (Symbol[name] === undefined) {
    Object.defineProperty(Symbol, name, { value: Symbol.for(`nodejs.${name}`) });
  }
}

export {};
